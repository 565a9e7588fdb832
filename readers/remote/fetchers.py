"""Fetchers: the threads that wait for remote storage, shared by all reads of a process.

They are many more than the cores, because a request mostly waits; what they do holds no interpreter lock. Their number
is what bounds the requests in flight.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from voxload.readers.team import before_fork, dismiss

T = TypeVar("T")
REQUESTS_IN_FLIGHT = 32
"""At 16 MiB a request and 100 MB/s a connection, enough for 25 Gbit/s; servers begin to refuse beyond some hundreds
a client, and a node has several ranks."""


class _Fetchers(Executor):
    """A pool whose threads start when something is asked of them, and end when they are paused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have a thread call `fn`; see Executor."""
        with self._lock:  # so that no pause comes between
            if self._pool is None:
                self._pool = ThreadPoolExecutor(REQUESTS_IN_FLIGHT, thread_name_prefix="voxload-fetch")
            return self._pool.submit(fn, *args, **kwargs)

    def pause(self) -> None:
        """Let the threads end; what was asked is still done."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            dismiss(pool)


_fetchers = _Fetchers()


def fetchers() -> Executor:
    """Return the process's pool; its threads are ended by the interpreter, and before a fork."""
    return _fetchers


def _pause() -> None:
    """Stop the threads before a fork."""
    _fetchers.pause()


def _forget() -> None:
    """Start without threads in a forked child: they do not survive a fork."""
    global _fetchers  # noqa: PLW0603 - threads belong to the process
    _fetchers = _Fetchers()


before_fork(_pause)
os.register_at_fork(after_in_child=_forget)
