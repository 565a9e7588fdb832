"""Watch: processes that read damaged inputs, each of which may crash, hang or eat memory."""

from __future__ import annotations

import json
import os
import pickle
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.fuzzing.outcomes import Outcome, Record
from tests.support.fuzzing.rawtargets import make_raw_targets
from tests.support.fuzzing.targets import Target, make_targets
from tests.support.fuzzing.worker import Plan, check_sound, limit, read_with_h5py, work

_BATCH = 400
"""Inputs of one process: libraries that leak on errors then do not reach the bound by that."""
_START_SECONDS = 600
"""Longest time in which a process gets ready: it reads every sound volume once, with half of a core perhaps."""


def forked(call: Callable[[], None]) -> int:
    """Run `call` in a forked child without output; returns its process id. Its exit status is 1 after an exception.

    The parent must have no threads: it only ever imports, forks and waits.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, sys.stderr.fileno())
        call()
        status = 0
    finally:
        os._exit(status)


def sound_targets(*, are_raw: bool = False) -> list[Target]:
    """Make the targets, with `are_raw` those that only a conversion reads too.

    A child makes them: libraries that start threads would make forking from here unsafe.
    """
    reader, writer = os.pipe()

    def make() -> None:
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump([*make_targets(), *(make_raw_targets() if are_raw else ())], pipe)

    pid = forked(make)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        targets: list[Target] = pickle.load(pipe)  # noqa: S301 - our own child's
    os.waitpid(pid, 0)
    return targets


@dataclass(slots=True)
class _Process:
    """One process at work on a batch."""

    left: list[int]
    """Inputs not done yet; the first may be begun."""
    folder: Path
    pid: int
    pipe: int
    begun: float = field(default_factory=time.monotonic)
    """When it last said something."""
    is_ready: bool = False
    """Whether it said anything: what is begun before that is no input."""
    unread: bytes = b""

    def is_late(self, now: float, seconds: float) -> bool:
        """Tell whether it has been quiet for longer than an input may take, or its start."""
        return now - self.begun > (seconds if self.is_ready else _START_SECONDS)


class Watch:
    """Runs a plan's inputs in `jobs` processes at a time.

    Parameters
    ----------
    plan
        What is fuzzed.
    folder
        Where the processes keep their volumes.
    jobs
        Processes at a time.
    """

    def __init__(self, plan: Plan, folder: Path, *, jobs: int) -> None:
        self._plan = plan
        self._folder = folder
        self._jobs = jobs

    def reads_sound(self) -> bool:
        """Tell whether all volumes are read right before they are damaged."""
        pid = forked(lambda: check_sound(self._plan, self._folder / "sound"))
        return os.waitpid(pid, 0)[1] == 0

    def run(self, indices: Sequence[int]) -> Iterator[Record]:
        """Yield a record of every input, in the order in which they are done."""
        batches = [list(indices[start : start + _BATCH]) for start in range(0, len(indices), _BATCH)]
        with selectors.DefaultSelector() as selector:
            free = list(range(self._jobs))
            while batches or len(free) < self._jobs:
                while batches and free:
                    process = self._start(batches.pop(0), self._folder / f"worker{free.pop()}")
                    selector.register(process.pipe, selectors.EVENT_READ, process)
                ready = {key.fd for key, _ in selector.select(timeout=0.2)}
                for key in list(selector.get_map().values()):
                    process = key.data
                    if key.fd in ready and (data := os.read(process.pipe, 1 << 16)):
                        yield from self._heard(process, data)
                        continue
                    is_hanging = process.is_late(time.monotonic(), self._plan.seconds)
                    if key.fd not in ready and not is_hanging:
                        continue
                    selector.unregister(process.pipe)
                    free.append(int(process.folder.name.removeprefix("worker")))
                    yield from self._ended(process, is_hanging=is_hanging and key.fd not in ready)
                    if process.left:
                        batches.insert(0, process.left)

    def _start(self, indices: list[int], folder: Path) -> _Process:
        reader, writer = os.pipe()
        pid = forked(lambda: work(self._plan, indices, folder, writer))
        os.close(writer)
        return _Process(indices, folder, pid, reader)

    def _heard(self, process: _Process, data: bytes) -> Iterator[Record]:
        process.begun = time.monotonic()
        process.is_ready = True
        *lines, process.unread = (process.unread + data).split(b"\n")
        for line in lines:
            words = json.loads(line)
            if "outcome" in words:
                process.left.remove(words["index"])
                yield self._record(words["index"], Outcome[words["outcome"]], words["detail"])

    def _ended(self, process: _Process, *, is_hanging: bool) -> Iterator[Record]:
        """Yield what became of the input at which a process ended, if it did not end by itself."""
        os.close(process.pipe)
        if is_hanging:
            os.kill(process.pid, signal.SIGKILL)
        _, status = os.waitpid(process.pid, 0)
        if not process.left:
            return
        index = process.left.pop(0)
        if is_hanging:
            outcome, detail = Outcome.HANG, f"more than {self._plan.seconds:g} s"
        elif os.WIFSIGNALED(status):
            outcome, detail = Outcome.CRASH, signal.Signals(os.WTERMSIG(status)).name
        else:
            outcome, detail = Outcome.FOREIGN, f"the process ended with status {os.WEXITSTATUS(status)}"
        if self._plan.target(index).is_hdf5 and self._is_librarys(index, process.folder):
            outcome = Outcome.LIBRARY_HANG if is_hanging else Outcome.LIBRARY_CRASH
        yield self._record(index, outcome, detail)

    def _is_librarys(self, index: int, folder: Path) -> bool:
        """Tell whether h5py alone crashes or hangs on an input too."""
        target, path = self._plan.target(index), folder / "alone.h5"
        path.write_bytes(self._plan.draw(index).data)

        def alone() -> None:
            limit(self._plan.memory)
            read_with_h5py(str(path), target.dataset)

        pid = forked(alone)
        deadline = time.monotonic() + self._plan.seconds
        while time.monotonic() < deadline:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.WIFSIGNALED(status)
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return True

    def _record(self, index: int, outcome: Outcome, detail: str) -> Record:
        return Record(index, self._plan.target(index).name, self._plan.draw(index).kind, outcome, detail)
