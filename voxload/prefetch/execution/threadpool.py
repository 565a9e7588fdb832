"""Thread pool of daemons: none of its threads keeps the process from ending.

The interpreter joins all threads of concurrent.futures when it ends: one read of a mount that hangs would keep a rank
that has failed, and its connections, for ever, and the other ranks would wait for it.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from time import monotonic
from typing import Any, Protocol

from voxload.errors import InternalError

GRACE = 5.0
"""Seconds that closing, and the end of the process, wait for what is under way: what ends by itself mostly does so."""


class Task(Protocol):
    """Work that tells by itself what became of it."""

    def run(self) -> None:
        """Do it; raises nothing."""
        ...

    def cancel(self) -> None:
        """Learn that no thread will do it."""
        ...


class DaemonThreadPool(Executor):
    """An executor whose threads are daemons; they begin when there is work, and end with `shutdown` or this object.

    Parameters
    ----------
    count
        Most threads.
    name
        How their names begin.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_over = False
        self._end = weakref.finalize(self, self._tasks.put, None)
        self._end.atexit = False
        _ALL.add(self)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Let a thread call something; raises RuntimeError after `shutdown`."""
        with self._lock:
            if self._is_over:
                raise RuntimeError("cannot schedule new futures after shutdown")
            task = _Call(fn, args, kwargs)
            self._tasks.put(task)
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._count:
                self._start()
        return task.future

    def post(self, task: Task) -> None:
        """Let a thread do a task, without a future, which costs as much as a small read; raises as `submit` does.

        All threads begin with the first one.
        """
        with self._lock:
            if self._is_over:
                raise RuntimeError("cannot schedule new tasks after shutdown")
            self._tasks.put(task)
            while len(self._threads) < self._count:
                self._start()

    def posting(self, task: Task) -> Callable[[], None]:
        """Return what lets a thread that there is do a task; for finalisers: it takes no lock and knows no pool."""
        return partial(self._tasks.put, task)

    @property
    def is_idle(self) -> bool:
        """Whether no task waits for a thread."""
        return self._tasks.empty()

    def _start(self) -> None:
        thread = threading.Thread(
            target=_work, args=(self._tasks, self._idle), name=f"{self._name}_{len(self._threads)}", daemon=True
        )
        self._threads.append(thread)
        thread.start()
        _THREADS.add(thread)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; wait for what is under way, but no longer than `GRACE`."""
        with self._lock:
            self._is_over = True
        if cancel_futures:
            self._cancel()
        self._tasks.put(None)
        if wait:
            self.join(monotonic() + GRACE)

    def join(self, deadline: float) -> None:
        """Wait for the threads to end, until a time of the monotonic clock."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - monotonic()))

    def _cancel(self) -> None:
        """Take back what has not begun."""
        while True:
            try:
                task = self._tasks.get_nowait()
            except queue.Empty:
                return
            if task is not None:
                task.cancel()


class _Call:
    """A call and what becomes of it."""

    def __init__(self, act: Callable[..., Any], args: tuple[Any, ...], words: dict[str, Any]) -> None:
        self.future: Future[Any] = Future()
        self._call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None = (act, args, words)

    def run(self) -> None:
        """Do it, unless it was cancelled."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self._result()
        except BaseException as error:  # noqa: BLE001 - raised to who waits for the result
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def cancel(self) -> None:
        """Cancel its future."""
        self.future.cancel()

    def _result(self) -> Any:
        """Call it, once; whoever learns that it is done finds its arguments, slots among them, let go."""
        call, self._call = self._call, None
        if call is None:
            raise InternalError("task", found="a second call", expected="one")
        act, args, words = call
        return act(*args, **words)


def _work(tasks: queue.SimpleQueue[Task | None], idle: threading.Semaphore) -> None:
    """Run one task after the other; knows no pool, which could not go otherwise."""
    while True:
        try:
            task = tasks.get_nowait()
        except queue.Empty:
            idle.release()
            task = tasks.get()
        if task is None:
            tasks.put(None)  # for the next thread
            return
        task.run()
        del task  # its arguments are not this thread's to keep while it waits


_ALL: weakref.WeakSet[DaemonThreadPool] = weakref.WeakSet()
_THREADS: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""Those of all pools, of pools that are gone too."""


def _end_all() -> None:
    """Give threads time to leave the libraries that they are in.

    Some native code ends the process when its thread is taken away. A thread that is taken away within h5py keeps
    h5py's lock, for which the end of the interpreter then waits.
    """
    for pool in list(_ALL):
        pool.shutdown(wait=False, cancel_futures=True)
    deadline = monotonic() + GRACE
    for thread in list(_THREADS):
        thread.join(max(0.0, deadline - monotonic()))


def _forget() -> None:
    """Leave the threads of others alone: a forked child has none of them."""
    _ALL.clear()
    _THREADS.clear()


os.register_at_fork(after_in_child=_forget)
# The hook that concurrent.futures ends its own threads by, the last comer first: with atexit these threads would find
# pools, and zarr-python's event loop, closed while they work, and wait for them.
_register: Callable[[Callable[[], None]], Any] = getattr(threading, "_register_atexit", atexit.register)
_register(_end_all)
