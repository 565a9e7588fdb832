"""Job: what the process of one run is told, and what it tells afterwards; both travel as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from bench.loading.cases import Case


@dataclass(frozen=True, slots=True)
class Job:
    """One contender's run."""

    contender: str
    case: Case
    paths: tuple[str, ...]
    """Samples."""
    workers: int
    """Threads or worker processes, as many as cores."""
    compute: float
    """Seconds of a step of the consumer that computes; 0: there is none."""
    steady_epochs: int
    """Epochs with that consumer."""
    seed: int
    """Of the shuffling."""

    def write(self, path: Path) -> None:
        """Store it for the process."""
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Job:
        """Return what was stored."""
        words = json.loads(path.read_text())
        case = Case(**{**words["case"], "spatial": tuple(words["case"]["spatial"])})
        return cls(**{**words, "paths": tuple(words["paths"]), "case": case})


@dataclass(frozen=True, slots=True)
class Account:
    """What a run saw."""

    first: float
    """Seconds from making the data set to having the first batch, the loader's making included."""
    epochs: tuple[float, ...]
    """Seconds of each epoch flat out; the first begins where the data set is made."""
    steps: tuple[float, ...]
    """Seconds of each step with a consumer that computes, from one request to the next, after the first."""
    sums: tuple[tuple[int, ...], ...]
    """A checksum of some voxels of each sample, sorted, for each epoch flat out."""
    base: int
    """Bytes that the process held when everything was imported, and nothing made."""

    def write(self, path: Path) -> None:
        """Store it for the command."""
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Account:
        """Return what was stored."""
        words = json.loads(path.read_text())
        return cls(
            first=words["first"],
            epochs=tuple(words["epochs"]),
            steps=tuple(words["steps"]),
            sums=tuple(map(tuple, words["sums"])),
            base=words["base"],
        )
