"""Crew: worker processes that end when their owner is done with them, fails or is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import TypeVar

from voxload.errors import InternalError

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes; an exception in the block ends them at once, whatever they do.

    Each holds the far end of a pipe and ends when the near one is closed, which the kernel does for a killed owner.
    They are spawned and not forked: the owner may hold threads, and libraries locks, that a fork would leave behind.

    Raises InternalError when a worker dies.
    """
    context = multiprocessing.get_context("spawn")
    far, near = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_follow, initargs=(far,))
    try:
        _start(pool)
        yield pool
    except BrokenProcessPool as error:
        raise InternalError(
            "worker processes",
            found="one that was killed",
            remedy="use fewer --workers if memory was short, and run it again: complete samples are kept",
        ) from error
    except BaseException:
        near.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        near.close()
        far.close()


def completed(
    pool: ProcessPoolExecutor, work: Callable[[T], R], over: Iterable[T], *, ahead: int
) -> Iterator[tuple[T, R]]:
    """Yield each of what is worked on, with what came of it, in the order in which that is done.

    No more than `ahead` are submitted at once: there may be a million, and each future takes memory. None is ever
    cancelled, as `Executor.map` does where it is left early: a pool whose processes end while it has cancelled
    futures fails in a thread of its own (CPython 3.11), and says so to people who have pressed Ctrl-C.
    """
    left, under_way = iter(over), dict[Future[R], T]()
    while True:
        for one in islice(left, ahead - len(under_way)):
            under_way[pool.submit(work, one)] = one
        if not under_way:
            return
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            yield under_way.pop(future), future.result()


def _start(pool: ProcessPoolExecutor) -> None:
    """Start all processes now, and keep Ctrl-C from them even before they run: what is blocked here is blocked there.

    One that it reached while it imports would die, and its owner might hear of that before it hears of Ctrl-C itself.
    """
    resource_tracker.ensure_running()  # else it is started in between, and unblocks what is blocked
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        pool.submit(int)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow(lifeline: Connection) -> None:
    """Let this process end with its owner; Ctrl-C is the owner's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_at_end, args=(lifeline,), name="voxload-lifeline", daemon=True).start()


def _exit_at_end(lifeline: Connection) -> None:
    lifeline.poll(None)
    os._exit(1)
