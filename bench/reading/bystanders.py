"""Bystanders: how much of the machine others used while the clock ran."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM = 13, 14
"""Fields of /proc/<pid>/stat, counted from 0: time in user and in system mode (proc(5))."""


class Bystanders:
    """Counts from its making on; two threads are no faster than one while somebody else has the second core."""

    def __init__(self) -> None:
        self._children = _children()
        self._start = time.perf_counter()
        self._busy, self._own = _busy(), _own(self._children)

    def cores(self) -> float:
        """Return how many cores were busy on average with other work than this process's and its children's."""
        passed = time.perf_counter() - self._start
        others = (_busy() - self._busy) - (_own(self._children) - self._own)
        return max(0.0, others / passed)


def _busy() -> float:
    """Return the seconds that all cores were not idle, those that a hypervisor took away included."""
    user, nice, system, _idle, _wait, hard, soft, stolen, *_ = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + hard + soft + stolen) / _TICKS


def _own(children: list[int]) -> float:
    """Return the seconds of this process, of those that it started and waited for, and of its living children."""
    ticks = 0
    for child in children:
        fields = _fields(child)
        ticks += int(fields[_USER]) + int(fields[_SYSTEM])
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system + ticks / _TICKS


def _children() -> list[int]:
    """Return the processes that this one has started."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(word) for word in listed]


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat; the second one, the name, may hold spaces."""
    text = Path(f"/proc/{pid}/stat").read_text()
    name_end = text.rindex(")")
    return [str(pid), "", *text[name_end + 2 :].split()]
