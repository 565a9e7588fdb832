"""Node memory: how much of it the page cache can have at most, and how it is kept from it."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from voxload.errors import StorageError, UsageError
from voxload.files.memory_left import groups, memory_left
from voxload.units import format_bytes


def memory_limit(proc: Path = Path("/proc")) -> int:
    """Return the bytes of memory of this node, or of the least memory cgroup above this process where that is less.

    Pages of files that a group reads count as its memory, so its limit bounds its page cache too.

    Parameters
    ----------
    proc
        Where the process file system is mounted.

    Raises
    ------
    StorageError
        Where ``meminfo`` does not say how much memory there is.
    """
    memberships, mounts = (_text(proc / "self" / name) for name in ("cgroup", "mountinfo"))
    limits = [_text(folder / version.limit).strip() for folder, version in groups(memberships, mounts)]
    # Without a limit, version 2 says "max", and version 1 a number near 2**63.
    return min([_physical(proc / "meminfo"), *(int(limit) for limit in limits if limit.isdigit())])


def _physical(path: Path) -> int:
    for line in _text(path).splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 2**10
    raise StorageError(f"{path}", found="no MemTotal", expected="the memory of this node", remedy="say how much it has")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a system without cgroups, or a group without a limit
        return ""


_libc = ctypes.CDLL(None)
_libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_STEP = 1 << 26
"""Bytes between looks at what is left: others take memory meanwhile."""
_SHARE = 20
"""The part of what is left that is not taken is one of so many: the job needs memory, too."""


class HeldMemory:
    """Holds memory until it is closed; a context manager; used by one thread.

    Every page is written to, and locked where the process may (RLIMIT_MEMLOCK): swapping it out would give its place
    to the page cache. What is asked for is compared with what is left before anything is taken, and while it is.

    Parameters
    ----------
    nbytes
        How much; 0 for nothing.

    Raises
    ------
    UsageError
        When it is not there; nothing is held then.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.is_locked = False
        self._memory: mmap.mmap | None = None
        if nbytes:
            self._check(nbytes, memory_left())
            self._memory = mmap.mmap(-1, nbytes)
            self._fill(self._memory)

    def _fill(self, memory: mmap.mmap) -> None:
        view = np.frombuffer(memory, np.uint8)
        try:
            for start in range(0, self.nbytes, _STEP):
                self._check(min(_STEP, self.nbytes - start), memory_left())
                view[start : start + _STEP : mmap.PAGESIZE] = 1
            self.is_locked = _libc.mlock(view.ctypes.data, self.nbytes) == 0
        except UsageError:
            del view
            self.close()
            raise

    def _check(self, wanted: int, left: int) -> None:
        if wanted > left - left // _SHARE:
            raise UsageError(
                f"holding {format_bytes(self.nbytes)} of memory",
                found=f"{format_bytes(left)} left",
                expected=f"one part in {_SHARE} more than what is still wanted, {format_bytes(wanted)}",
                remedy="hold less",
            )

    def close(self) -> None:
        """Give the memory back; may be called twice."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
