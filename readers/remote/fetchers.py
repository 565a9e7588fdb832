"""Fetchers: the threads that wait for remote storage, shared by all reads of a process.

They are many more than the cores, because a request mostly waits; what they do holds no interpreter lock. Their number
is what bounds the requests in flight.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

REQUESTS_IN_FLIGHT = 32
"""At 16 MiB a request and 100 MB/s a connection, enough for 25 Gbit/s; servers begin to refuse beyond some hundreds
a client, and a node has several ranks."""

_pool: ThreadPoolExecutor | None = None
_lock = threading.Lock()


def fetchers() -> ThreadPoolExecutor:
    """Return the process's pool; made at its first use, and ended by the interpreter."""
    global _pool  # noqa: PLW0603 - threads belong to the process
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(REQUESTS_IN_FLIGHT, thread_name_prefix="voxload-fetch")
        return _pool


def _forget() -> None:
    """Start without threads in a forked child: they do not survive a fork."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
