"""Beside: how much longer the loop's own work takes beside a loader, against the same reading by another process.

Three ways in turns, in one process: it works alone; it works beside its own loader; it works while another process
takes batches at the same pace. The work is the same each time, so cores and memory that reading takes are the same in
the second and the third, and what is left between them is what sharing an interpreter costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.harness.children import Child, started
from bench.harness.findings import Finding, Outcome, Sheet, at_most
from bench.looping.cases import OWNS, STORES
from voxload.benchmark.measure.turns import Turns, in_turns
from voxload.benchmark.workload.workload import Length, Samples, Share, Supply, Workload

MOST = 1.02
"""Of a step beside the loader, over one beside an unrelated process that reads the same."""
STORE = "hdf5-gzip"
WORKS = ("python", "torch-small")
_SECONDS = 0.02
_WARM = 3
"""Times as many steps before any is timed: of a hundred they take longer than a process that imports torch."""
_CHILD = "bench.looping.worker:ready"


@dataclass(frozen=True, slots=True)
class Loop:
    """One loader beside one kind of work."""

    size: int
    work: str
    loader: str

    @property
    def name(self) -> str:
        """What tables say of it."""
        return f"{self.size}^3, {self.work}, {self.loader}"


@dataclass(frozen=True, slots=True)
class Took:
    """Middle seconds of a step, in each way."""

    alone: float
    beside: float
    apart: float


def measured(folder: Path, sizes: Sequence[int], *, steps: int, rounds: int) -> Outcome:
    """Time all loops in turns."""
    loops = [Loop(size, work, loader) for size in sizes for work in WORKS for loader in (*OWNS, STORES[STORE].peer)]
    samples = {size: STORES[STORE].samples(folder, size, 16) for size in sizes}

    def run(loop: Loop) -> Took:
        text = _workload(samples[loop.size], loop.loader).to_json()
        words = (_CHILD, text, loop.work, _SECONDS)
        # Of one session: where systems share cores among sessions first, the other one would have half of them.
        with started(*words, is_apart=False) as own, started(*words, is_apart=False) as other:
            # Files are in memory and kept open then, and processes that read have begun.
            other.send("asleep", _WARM * steps)
            own.ask("asleep", _WARM * steps)
            other.answer()
            found = Took(_middle(own, "alone", steps), _middle(own, "beside", steps), _apart(own, other, steps))
        print(f"{loop.name}: {found.beside / found.alone:.3f}, {found.apart / found.alone:.3f} apart", flush=True)
        return found

    return outcome(in_turns(tuple(loops), rounds, run))


def outcome(turns: Turns[Loop, Took]) -> Outcome:
    """Return what the runs come to: voxload's are judged, the peer's are shown."""
    loops = tuple(turns.results)
    rows = []
    findings: list[Finding] = []
    for loop in loops:
        results = turns.results[loop]
        ratios = [
            tuple(each.beside / each.alone for each in results),
            tuple(each.apart / each.alone for each in results),
        ]
        excess = tuple(each.beside / each.apart for each in results)
        rows.append((loop.name, *(f"{median(each):.3f}" for each in (*ratios, excess))))
        if loop.loader in OWNS:
            findings.append(at_most(f"{loop.name}: beside over apart", MOST, excess))
    columns = ("loop", "beside its loader", "beside another process", "first over second")
    caption = f"work of {_SECONDS * 1e3:g} ms over what it takes alone; medians of {len(turns.others)} rounds"
    return Outcome(
        findings=tuple(findings),
        sheets=(Sheet("Work of the loop's own thread", caption, columns, tuple(rows)),),
        document={loop.name: [(each.alone, each.beside, each.apart) for each in turns.results[loop]] for loop in loops},
        others=turns.others,
    )


def _middle(own: Child, mode: str, steps: int) -> float:
    return float(median(own.ask(mode, steps)))


def _apart(own: Child, other: Child, steps: int) -> float:
    """Work while the other process takes batches, more than are timed; a busy machine may let it end before, though.

    Then it is tried again with more of them: what was timed was in part without the other process.
    """
    for more in (2, 8, 32, 128):
        other.send("asleep", more * steps)
        found = _middle(own, "alone", steps)
        has_ended = other.has_answered()
        other.answer()
        if not has_ended:
            return found
    raise RuntimeError("the other process stopped before the work was done: more steps are needed")


def _workload(samples: Path, loader: str) -> Workload:
    # Epochs follow each other for as long as is timed: more than one, so that what follows may be read ahead.
    return Workload(Samples(str(samples)), Share((1, 1, 1)), Length(epochs=2), Supply(loader, threads=2))
