"""Turn: one contender's work in a process of its own, and what it cost."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.harness import children
from voxload.benchmark.cold.pagecache import evict, warm
from voxload.benchmark.measure.turns import Turns, in_turns

_LIMIT = 3600.0
"""Seconds that a turn may take before it is given up."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a run is asked for: choices that all measurements share."""

    cubes: int
    """Universes of the copy."""
    extent: int
    """Voxels along each axis of a universe."""
    rounds: int
    """Turns of each contender."""
    is_cold: bool
    """Whether the page cache forgets the sources before each turn."""
    compression: str
    """Codec of Zarr chunks."""
    rechunker: str = ""
    """A Python that has rechunker; empty for none."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn cost."""

    seconds: float
    """From the call to its return, the result flushed."""
    cpu: float
    """Seconds on cores, of all threads."""
    peak: int
    """Most bytes of memory that the process had at once."""
    read: int
    """Bytes that it asked of the system, cached or not."""
    written: int
    """Bytes that it handed to the system."""
    device_read: int
    """Bytes that came from the device."""
    device_written: int
    """Bytes that were to go to the device."""
    stored: int
    """Bytes of the files that it left."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to do the work."""

    name: str
    turn: str
    """Function among the turns; called with the source, the result, and the words."""
    words: tuple[str, ...] = ()
    python: str = sys.executable
    """What runs it."""

    def run(self, source: Path, result: Path, *, is_cold: bool) -> Turn:
        """Do it once and leave the result, in place of an earlier one; raises RuntimeError when it fails."""
        remove(result)
        (evict if is_cold else warm)(source.iterdir())
        words = (self.turn, str(source), str(result), *self.words)
        printed, _ = children.run("bench.converting.turns", *words, limit=_LIMIT, python=self.python, must_succeed=True)
        return Turn(**json.loads(printed.splitlines()[-1]), stored=size_of(result))


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all below a folder."""
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(one.stat().st_size for one in files if one.is_file())


def remove(path: Path) -> None:
    """Remove a result."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def in_rounds(contenders: Sequence[Contender], source: Path, task: Task) -> Turns[str, Turn]:
    """Let contenders take turns, by their names, and leave no result."""
    result = source.parent / "result"
    named = {contender.name: contender for contender in contenders}
    found = in_turns(tuple(named), task.rounds, lambda name: named[name].run(source, result, is_cold=task.is_cold))
    remove(result)
    return found


def seconds(turn: Turn) -> float:
    """Return the time of a turn."""
    return turn.seconds


def document(found: Turns[str, Turn]) -> dict[str, Any]:
    """Return all turns as plain values."""
    return {name: [asdict(turn) for turn in turns] for name, turns in found.results.items()}
