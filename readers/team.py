"""Team: the threads that decode, shared by all reads of a process; its pools end before it is forked.

Forks: threads end before this process is forked, or a warning says which ones the child will miss. A forked child has
one thread, and every lock as it stood: what another thread of the parent held stays held there. So pools whose
threads wait for work are stopped first and made again at their next use. Threads that are at work cannot be stopped:
they are named once, with the remedy.

A read is a list of independent tasks. The calling thread always works on them itself, and as many helpers join in
as are free: a read never waits for a thread, and many readers at once do not multiply threads. Tasks hold no
interpreter lock while they move bytes, so two threads do twice the work.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import TypeVar

from voxload.errors import UsageError
from voxload.grid import ranks_here

_THREAD_NAMES = ("voxload-", "fsspecIO")
"""How the names of the threads begin that reading may start."""
_FORK_TIMEOUT = 1.0
"""Seconds that a fork waits for a pool that is at work: a request may take minutes, and the child does not need it."""

_stops: list[Callable[[], None]] = []
_has_told = False


def before_fork(stop: Callable[[], None]) -> None:
    """Have `stop` called before each fork of this process; it ends threads that are made again at their next use."""
    _stops.append(stop)


def dismiss(pool: ThreadPoolExecutor) -> None:
    """Let a pool's threads end, and wait for those that have nothing to do; what was submitted is still done."""
    pool.shutdown(wait=False)
    me = threading.current_thread()
    for thread in list(pool._threads):  # noqa: SLF001 - it says of no other way which threads are its own
        if thread is not me:
            thread.join(_FORK_TIMEOUT)
            if thread.is_alive():
                return
            _vanish(thread)


def _vanish(thread: threading.Thread) -> None:
    """Wait for the system's thread, which Python lets go of a moment before it is gone."""
    place = f"/proc/self/task/{thread.native_id}"
    until = time.monotonic() + _FORK_TIMEOUT
    while os.path.exists(place) and time.monotonic() < until:  # noqa: PTH110 - a path object for each look takes longer
        time.sleep(0)


def _prepare() -> None:
    """Stop what can be stopped, and tell of the rest."""
    global _has_told  # noqa: PLW0603 - told once by each process
    for stop in _stops:
        stop()
    me = threading.current_thread()
    names = sorted(thread.name for thread in threading.enumerate() if thread is not me)
    left = [name for name in names if name.startswith(_THREAD_NAMES)]
    if left and not _has_told:
        _has_told = True
        warnings.warn(
            f"this process is forked while threads read for it ({', '.join(left[:4])}): the child may wait for ever "
            'for what they hold; start workers with multiprocessing_context="forkserver" or "spawn"',
            RuntimeWarning,
            stacklevel=2,
        )


os.register_at_fork(before=_prepare)


T = TypeVar("T")

_URGENT = -1
"""Place of an interrupt among the errors: before those of all tasks."""
_SLOT_TIMEOUT = 0.1
"""Seconds that a caller waits for a core: longer than nearly all reads from memory take."""


def default_threads() -> int:
    """Return this process's share of the cores it may use: all of them over the ranks of its node."""
    return max(1, len(os.sched_getaffinity(0)) // (ranks_here(os.environ) or 1))


class Team:
    """A bounded number of threads that take tasks from the reads that run; safe to use from many threads at once.

    Whatever their number, no more of them work at once than there are cores, callers included: one more would take
    turns with the others, and every turn costs the caches their contents and the interpreter's lock a hand-over. A
    caller waits for its turn, but not for long: who works may itself be waiting, for a server or for this caller.

    Parameters
    ----------
    threads
        Threads that one read may use, the calling one included.
    """

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise UsageError("threads", found=str(threads), expected="1 or more, the calling one included")
        self.threads = threads
        cores = len(os.sched_getaffinity(0))
        self._helpers = min(threads, cores) - 1
        self._slots = threading.Semaphore(cores)
        self._holders = threading.local()
        self._pool = self._made()

    def _made(self) -> ThreadPoolExecutor | None:
        """Return a pool whose threads start when there is work for them."""
        return ThreadPoolExecutor(self._helpers, thread_name_prefix="voxload-decode") if self._helpers else None

    def run(self, work: Callable[[T], None], tasks: Sequence[T]) -> None:
        """Do `work` on every task; returns when all are done and no helper is at it any more.

        Raises what the first failing task raised, whichever thread came upon an error first; tasks that have not
        begun by then are dropped.
        """
        left, failures = enumerate(tasks), list[tuple[int, BaseException]]()
        shared: list[Callable[[], None]] = [partial(_labour, work, left, failures)]
        with self.slot():
            joined = self._join(len(tasks) - 1, shared)
            try:
                _labour(work, left, failures)
                self._dismiss(joined)
            except BaseException as error:  # noqa: BLE001 - Ctrl-C outside a task; raised once no helper writes any more
                failures.append((_URGENT, error))
                self._dismiss(joined)
            finally:
                shared.clear()
        if failures:
            first = min(failures, key=itemgetter(0))[1]
            try:
                raise first
            finally:  # an error that is held by a frame that it holds itself would keep the caller's array alive
                failures.clear()
                del first

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Let the calling thread work meanwhile, once there is a core for it or it has waited long enough.

        A read takes its slot before it plans: sixteen callers that plan at once hold the interpreter's lock in turns of
        milliseconds each, and those that decode wait for it. A thread that has a slot keeps it.
        """
        if getattr(self._holders, "is_so", False):
            yield
            return
        has_slot = self._slots.acquire(timeout=_SLOT_TIMEOUT)
        self._holders.is_so = True
        try:
            yield
        finally:
            self._holders.is_so = False
            if has_slot:
                self._slots.release()

    def close(self) -> None:
        """Stop the helpers; reads go on without them."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def pause(self) -> None:
        """Stop the helpers until they are next needed; may be called while others read."""
        pool, self._pool = self._pool, self._made() if self._pool else None
        if pool is not None:
            dismiss(pool)

    def _join(self, most: int, shared: list[Callable[[], None]]) -> list[Future[None]]:
        """Set as many helpers to work as there are slots for, which each gives up when it is done.

        The pool holds what was submitted until a thread comes upon it, cancelled or not. So the work, and the caller's
        array in it, is in a list that the caller empties: a slot is free when its read is over.
        """
        pool, joined = self._pool, list[Future[None]]()
        while pool is not None and len(joined) < min(most, self.threads - 1) and self._slots.acquire(blocking=False):
            try:
                joined.append(pool.submit(_join_in, shared))
            except RuntimeError:  # paused or closed since: the read goes on without
                self._slots.release()
                break
            joined[-1].add_done_callback(self._leave)
        return joined

    def _leave(self, _helper: Future[None]) -> None:
        self._slots.release()

    @staticmethod
    def _dismiss(joined: list[Future[None]]) -> None:
        """Wait for helpers that are at work; the others need not begin."""
        wait([helper for helper in joined if not helper.cancel()])


def _join_in(shared: list[Callable[[], None]]) -> None:
    """Take part in what is shared; not called once that is cancelled."""
    shared[0]()


def _labour(
    work: Callable[[T], None], left: Iterator[tuple[int, T]], failures: list[tuple[int, BaseException]]
) -> None:
    """Take tasks until there are none; the steps of `left` are the interpreter's own, so each task is taken once."""
    for index, task in left:
        # A task before the failing one is still done: it may be the first to fail.
        if failures and index > min(failures, key=itemgetter(0))[0]:
            return
        try:
            work(task)
        except BaseException as error:  # noqa: BLE001 - raised by `run`
            failures.append((index if isinstance(error, Exception) else _URGENT, error))
            return


_team: Team | None = None
_lock = threading.Lock()


def team() -> Team:
    """Return the process's team; made at its first use."""
    global _team  # noqa: PLW0603 - threads belong to the process
    with _lock:
        if _team is None:
            _team = Team(default_threads())
        return _team


def set_threads(count: int) -> None:
    """Let each read use `count` threads, the calling one included; for the whole process.

    The default is this process's share of the node's cores, and no more than these ever work at once. Call it while
    nothing reads.
    """
    global _team
    fresh = Team(count)
    with _lock:
        old, _team = _team, fresh
    if old is not None:
        old.close()


def _pause() -> None:
    """Stop the helpers before a fork."""
    if _team is not None:
        _team.pause()


def _forget() -> None:
    """Start without helpers in a forked child: threads do not survive a fork."""
    global _team, _lock
    _team, _lock = None, threading.Lock()


before_fork(_pause)
os.register_at_fork(after_in_child=_forget)
