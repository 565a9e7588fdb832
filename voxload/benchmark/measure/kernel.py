"""KernelCounter: what the kernel counted for this process and all that it started."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from voxload.benchmark.measure.record import Kernel
from voxload.errors import UsageError

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


_TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds of a clock tick."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Totals at one moment; only differences mean something."""

    asked: int
    """Bytes that read calls returned."""
    device: int
    """Bytes that came from devices."""
    cpu: float
    """Seconds of all threads."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of this process and those that it started, in bytes."""

    peak: int
    """Most that was resident: of each process by itself (VmHWM), summed over those that lived at the same look."""
    shared: int
    """Shared memory that is mapped now (RssShmem), summed: what two processes map counts twice."""


class KernelCounter:
    """Reads /proc for this process and its living descendants; used by one thread.

    A child that ended passes its counts to the parent that waits for it, as the kernel has it, so that nothing is lost
    or counted twice, however short its life. Lost are the counts of a process for which no process of ours waited
    (its parent ended first, or ignores SIGCHLD), but for those that were seen living at a mark and live still. A child
    that ends while a mark is taken may be counted on either side of it. Processes of other users are left out. What
    the counter itself reads is not counted; its processor time is.

    Raises
    ------
    UsageError
        On systems without /proc/PID/io.
    """

    def __init__(self) -> None:
        self._read_by_me = 0
        self._peak = 0
        me = status_of(os.getpid(), self._read)
        if me is None or self._counts(os.getpid()) is None:
            raise UsageError(
                "kernel counters",
                found="no /proc/self/io",
                expected="Linux with task I/O accounting",
                remedy="run the benchmark on the host, or in a container that shows /proc",
            )
        self._me = me.process
        self._known = {self._me}

    def mark(self) -> Mark:
        """Return the totals now; a few milliseconds on a node of many processes."""
        statuses = self._look()
        asked = device = 0
        for status in statuses:
            counts = self._counts(status.process.pid)
            if counts is not None:
                asked, device = asked + counts[0], device + counts[1]
        self._note_peak(statuses)
        return Mark(asked, device, sum(status.ticks for status in statuses) * _TICK)

    def since(self, mark: Mark) -> Kernel:
        """Return what was counted since `mark`; never negative."""
        now = self.mark()
        return Kernel(
            asked=max(0, now.asked - mark.asked),
            device=max(0, now.device - mark.device),
            cpu=max(0.0, now.cpu - mark.cpu),
        )

    def memory(self) -> Memory:
        """Return the memory; its peak is the largest of this look and all marks."""
        statuses = self._look()
        self._note_peak(statuses)
        return Memory(self._peak, sum(self._size(status, "RssShmem") for status in statuses))

    def _look(self) -> list[Status]:
        """Return this process, its descendants, and those that were so once and have been left by their parents."""
        found = family(self._known, self._read)
        self._known = {status.process for status in found}
        return found

    def _note_peak(self, statuses: list[Status]) -> None:
        self._peak = max(self._peak, sum(self._size(status, "VmHWM") for status in statuses))

    def _counts(self, pid: int) -> tuple[int, int] | None:
        """Return bytes that read calls returned and bytes from devices; None where that is not to be seen."""
        mine = self._read_by_me
        text = self._read(f"/proc/{pid}/io")
        if text is None:
            return None
        fields = dict(line.split(": ") for line in text.splitlines())
        return int(fields["rchar"]) - (mine if pid == os.getpid() else 0), int(fields["read_bytes"])

    def _size(self, status: Status, name: str) -> int:
        """Return a size in bytes that /proc/PID/status names; 0 for a process that has ended."""
        text = self._read(f"/proc/{status.process.pid}/status") or ""
        lines = (line.split() for line in text.splitlines() if line.startswith(f"{name}:"))
        return sum(1024 * int(words[1]) for words in lines)

    def _read(self, path: str) -> str | None:
        """Return what a file of /proc says, and count its bytes: the kernel does, too."""
        try:
            found = Path(path).read_bytes()
        except OSError:
            return None
        self._read_by_me += len(found)
        return found.decode(errors="replace")
