"""Memory: what a process and all that it started hold, shared pages counted once; looked at again and again."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.support.processes import descendants

_INTERVAL = 0.02
"""Seconds between looks: short beside the life of any batch."""
_ALIKE = ("Pss_Anon", "Pss_Shmem")
"""What counts: memory of its own and shared memory. Pages of files are the system's, which drops them as it likes."""


class MemoryWatch:
    """Looks at the memory of a tree of processes, in a thread, until it is told to stop.

    Looking walks over all pages of a process and keeps it from mapping others: what is timed is not looked at.

    Parameters
    ----------
    pid
        The process at the root.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = held_by(pid)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory-watch", daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Return the most bytes that were held at any look."""
        self._is_over.set()
        self._thread.join()
        return self._peak

    def _look(self) -> None:
        while not self._is_over.wait(_INTERVAL):
            self._peak = max(self._peak, held_by(self._pid))


def held_by(pid: int) -> int:
    """Return the bytes that a process and all that it started hold now."""
    return sum(_held(each) for each in (pid, *descendants(pid)))


def _held(pid: int) -> int:
    """Return the proportional share of one process: a page that n processes map counts for 1/n in each (proc(5))."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    words = [line.split() for line in lines[1:]]
    return 1024 * sum(int(word[1]) for word in words if word[0].rstrip(":") in _ALIKE)
