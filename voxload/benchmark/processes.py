"""Processes: a process and all that it started, as /proc lists them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Read = Callable[[str], str | None]
"""Returns what a file of /proc says; None where its process has ended or belongs to someone else."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process; numbers are used again, so that only number and start together name one."""

    pid: int
    start: int
    """Clock ticks since the system began."""


@dataclass(frozen=True, slots=True)
class Status:
    """What /proc/PID/stat says of a process."""

    process: Process
    parent: int
    """Number of the process that started it, or that took it over."""
    ticks: int
    """Processor time in clock ticks: its own, and that of children that ended and that it waited for."""


def family(roots: Iterable[Process], read: Read) -> list[Status]:
    """Return those of `roots` that live and all that they and theirs started; ended ones nobody waited for included."""
    known = {status.process.pid: status for status in _everyone(read)}
    children: dict[int, list[int]] = {}
    for status in known.values():
        children.setdefault(status.parent, []).append(status.process.pid)
    left = [root.pid for root in roots if root.pid in known and known[root.pid].process == root]
    found: dict[int, Status] = {}
    while left:
        pid = left.pop()
        if pid not in found:
            found[pid] = known[pid]
            left += children.get(pid, [])
    return list(found.values())


def status_of(pid: int, read: Read) -> Status | None:
    """Return the status of a process; None where there is none."""
    text = read(f"/proc/{pid}/stat")
    if text is None:
        return None
    # The name comes first and may hold anything, brackets and spaces too.
    words = text[text.rindex(")") + 2 :].split()
    return Status(Process(pid, int(words[19])), int(words[1]), sum(int(word) for word in words[11:15]))


def _everyone(read: Read) -> list[Status]:
    found = [status_of(int(name), read) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - names
    return [status for status in found if status is not None]
