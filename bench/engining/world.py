"""World: ranks that share one sample, each a process that waits for requests, so that worlds can take turns."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.harness.children import Child, begun

SPATIAL = {1: (1, 1, 1), 2: (2, 1, 1), 4: (2, 2, 1), 8: (2, 2, 2)}
"""Blocks along (d, h, w), by the number of ranks."""
PLAIN, SHARD, NONE, P2P, ALL_TO_ALL = "plain", "shard", "none", "p2p", "alltoall"
"""Torch's own network, what `shard` makes of it by default, and split ones by their exchange."""
PAD, AUTO = "pad", "auto"
JOINS = (PAD, "patch", "add", AUTO)
"""How a split network's convolutions join halos and blocks; see `voxload.engine.shard`."""
CHANNELS = TARGETS = 4
_RANK = "bench.engining.rank:answering"
"""Makes a rank."""
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_GRACE = 20.0
"""Seconds for a rank to say where it is."""
_SHOWN = 3000
"""Characters of a rank's messages that are shown when it failed."""
_KEPT = 2
"""Most ranks of a world that is kept: each rank holds several networks."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a rank runs the network."""

    exchange: str
    """One of the names above."""
    join: str = PAD
    """One of JOINS."""
    of: int = 0
    """Run the part of the first of so many ranks, whose others are not there; 0 for the world's own ranks."""

    @property
    def is_true(self) -> bool:
        """Whether results are those of the network: with messages that do not travel they are not."""
        return self.exchange != NONE


@dataclass(frozen=True, slots=True)
class Job:
    """What ranks are told when they start."""

    ranks: int
    size: int
    """Voxels of the whole volume along each axis."""
    device: str
    """``cpu``, or ``cuda``: each rank has a GPU of its own."""
    limit: float
    """Seconds after which a rank that has not answered says where it is, and ends."""


class World:
    """The ranks of a job, once all of them are ready.

    Parameters
    ----------
    job
        What they were told.
    ranks
        Their processes.
    folder
        Where each writes its messages.
    """

    def __init__(self, job: Job, ranks: Sequence[Child], folder: Path) -> None:
        self._job, self._ranks, self._folder = job, ranks, folder
        self._answers("start")

    def ask(self, call: str, way: Way, **words: Any) -> list[dict[str, Any]]:
        """Return what all ranks answer to a call; see Rank.

        Raises
        ------
        RuntimeError
            A rank failed, or they took too long.
        """
        return self._answers(f"{call} {way} {words}", (call, asdict(way), words))

    def _answers(self, what: str, request: Sequence[Any] = ()) -> list[Any]:
        """Send a request, if there is one, and return all answers."""
        deadline = time.monotonic() + self._job.limit + _GRACE
        try:
            if request:
                for rank in self._ranks:
                    rank.send(*request)
            return [rank.answer(max(0.0, deadline - time.monotonic())) for rank in self._ranks]
        except (OSError, RuntimeError) as error:
            raise RuntimeError(f"{self._job.ranks} ranks, {what}: {error}\n{self._messages()}") from error

    def _messages(self) -> str:
        texts = [_messages_of(self._folder, rank).read_text(errors="replace") for rank in range(self._job.ranks)]
        return "\n".join(f"rank {rank}: {text[-_SHOWN:]}" for rank, text in enumerate(texts))


class Worlds:
    """Worlds by their number of ranks, each started when it is first needed.

    Parameters
    ----------
    job
        What a rank alone is told.
    stack
        Ends them all.
    """

    def __init__(self, job: Job, stack: ExitStack) -> None:
        self._job, self._stack = job, stack
        self._running: dict[int, tuple[World, ExitStack]] = {}

    @property
    def device(self) -> str:
        """What computes, ``cpu`` or ``cuda``."""
        return self._job.device

    def of(self, ranks: int) -> World:
        """Return the world of so many ranks."""
        if ranks not in self._running:
            own = self._stack.enter_context(ExitStack())
            self._running[ranks] = own.enter_context(_started(replace(self._job, ranks=ranks))), own
        return self._running[ranks][0]

    def leave(self, ranks: int) -> None:
        """End a world, unless it is one of the few ranks that several measurements need."""
        if ranks > _KEPT and ranks in self._running:
            self._running.pop(ranks)[1].close()


@contextmanager
def worlds(size: int, device: str, *, limit: float) -> Iterator[Worlds]:
    """Yield worlds; nothing of them is left behind, not even when this process is told to end."""
    with _ending_in_order(), ExitStack() as stack:
        yield Worlds(Job(1, size, device, limit), stack)


@contextmanager
def _started(job: Job) -> Iterator[World]:
    """Yield the ranks of a job; they are killed at the end: they hold nothing that must be put away."""
    with tempfile.TemporaryDirectory(prefix="voxload-bench-") as folder, ExitStack() as stack:
        ranks = []
        for place in range(job.ranks):
            messages = stack.enter_context(_messages_of(Path(folder), place).open("wb"))
            words = asdict(job), place, folder
            ranks.append(stack.enter_context(begun(_RANK, *words, variables=_ONE_THREAD, errors=messages)))
        yield World(job, ranks, Path(folder))


def _messages_of(folder: Path, rank: int) -> Path:
    return folder / f"messages-{rank}"


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGTERM end this process as an exception does, so that what must be put away is."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
