"""Forks: threads end before this process is forked, or a warning says which ones the child will miss.

A forked child has one thread, and every lock as it stood: what another thread of the parent held stays held there. So
pools whose threads wait for work are stopped first and made again at their next use. Threads that are at work cannot be
stopped: they are named once, with the remedy.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_NAMES = ("voxload-", "fsspecIO")
"""How the names of the threads begin that reading may start."""
_PATIENCE = 1.0
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
            thread.join(_PATIENCE)
            if thread.is_alive():
                return
            _vanish(thread)


def _vanish(thread: threading.Thread) -> None:
    """Wait for the system's thread, which Python lets go of a moment before it is gone."""
    place = f"/proc/self/task/{thread.native_id}"
    until = time.monotonic() + _PATIENCE
    while os.path.exists(place) and time.monotonic() < until:  # noqa: PTH110 - a path object for each look takes longer
        time.sleep(0)


def _prepare() -> None:
    """Stop what can be stopped, and tell of the rest."""
    global _has_told  # noqa: PLW0603 - told once by each process
    for stop in _stops:
        stop()
    me = threading.current_thread()
    names = sorted(thread.name for thread in threading.enumerate() if thread is not me)
    left = [name for name in names if name.startswith(_NAMES)]
    if left and not _has_told:
        _has_told = True
        warnings.warn(
            f"this process is forked while threads read for it ({', '.join(left[:4])}): the child may wait for ever "
            'for what they hold; start workers with multiprocessing_context="forkserver" or "spawn"',
            RuntimeWarning,
            stacklevel=2,
        )


os.register_at_fork(before=_prepare)
