"""Launch: worlds of rank processes that wait for requests, so that worlds can take turns."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, cast

from bench.engining.job import Job, Way

_ROOT = Path(__file__).resolve().parents[2]
_GRACE = 20.0
"""Seconds for a rank to say where it is."""
_SHOWN = 3000
"""Characters of a rank's messages that are shown when it failed."""
_PIECE = 1 << 16
_KEPT = 2
"""Most ranks of a world that is kept: each rank holds several networks."""


class World:
    """The processes of one job; all that is left of them is killed when it is closed.

    Parameters
    ----------
    job
        What they are told.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._folder = Path(job.folder)
        path = self._folder / "job.json"
        job.write(path)
        self._processes: list[subprocess.Popen[bytes]] = []
        for rank in range(job.ranks):
            self._processes.append(_start(path, rank))

    def ask(self, call: str, way: Way, **words: Any) -> list[dict[str, Any]]:
        """Return what all ranks answer to a call; see Rank.

        Raises
        ------
        RuntimeError
            A rank failed, or they took too long.
        """
        request = json.dumps({"call": call, "way": asdict(way), **words}).encode() + b"\n"
        deadline = time.monotonic() + self._job.limit + _GRACE
        try:
            for process in self._processes:
                cast("IO[bytes]", process.stdin).write(request)
            return [_answer(process, deadline) for process in self._processes]
        except (OSError, EOFError, TimeoutError) as error:
            self.close()
            raise RuntimeError(f"{self._job.ranks} ranks, {call} {way} {words}: {error}\n{self._messages()}") from error

    def close(self) -> None:
        """Kill the processes; they hold nothing that must be put away."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                cast("IO[bytes]", pipe).close()

    def _messages(self) -> str:
        texts = [(self._folder / f"messages-{rank}").read_text(errors="replace") for rank in range(self._job.ranks)]
        return "\n".join(f"rank {rank}: {text[-_SHOWN:]}" for rank, text in enumerate(texts))


class Worlds:
    """Worlds by their number of ranks, each started when it is first needed."""

    def __init__(self, size: int, device: str, limit: float, folder: Path) -> None:
        self._words = size, device, limit
        self._folder = folder
        self._running: dict[int, World] = {}

    def of(self, ranks: int) -> World:
        """Return the world of so many ranks."""
        if ranks not in self._running:
            size, device, limit = self._words
            folder = Path(tempfile.mkdtemp(prefix=f"{ranks}-", dir=self._folder))
            self._running[ranks] = World(Job(ranks, size, device, limit, str(folder)))
        return self._running[ranks]

    def leave(self, ranks: int) -> None:
        """End a world, unless it is one of the few ranks that several measurements need."""
        if ranks > _KEPT and ranks in self._running:
            self._running.pop(ranks).close()

    def close(self) -> None:
        """End all of them."""
        with ExitStack() as stack:
            for world in self._running.values():
                stack.callback(world.close)
        self._running = {}


@contextmanager
def worlds(size: int, device: str, *, limit: float) -> Iterator[Worlds]:
    """Yield worlds; nothing of them is left behind, not even when this process is told to end."""
    with _ending_in_order(), tempfile.TemporaryDirectory(prefix="voxload-bench-") as folder:
        running = Worlds(size, device, limit, Path(folder))
        try:
            yield running
        finally:
            running.close()


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGTERM end this process as an exception does, so that what must be put away is."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _start(job: Path, rank: int) -> subprocess.Popen[bytes]:
    """Start one rank; it answers on its standard output, and its messages go to a file."""
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, "-m", "bench.engining.rank", str(job), str(rank)]
    with (job.parent / f"messages-{rank}").open("wb") as messages:
        return subprocess.Popen(
            command,
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            bufsize=0,
        )


def _answer(process: subprocess.Popen[bytes], deadline: float) -> dict[str, Any]:
    """Return the next line of a process, read before `deadline`."""
    pipe = cast("IO[bytes]", process.stdout)
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError("no answer in time")
        piece = os.read(pipe.fileno(), _PIECE)
        if not piece:
            raise EOFError("a rank has ended")
        line += piece
    answer: dict[str, Any] = json.loads(line)
    return answer
