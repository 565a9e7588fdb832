"""Job: what the ranks of one run are told, and what each of them tells afterwards; both travel as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from bench.prefetching.contender import Recipe


@dataclass(frozen=True, slots=True)
class Job:
    """One contender's run."""

    contender: str
    urls: tuple[str, ...]
    warm_up: str
    """A local file of the same format, read before the clock runs."""
    recipe: Recipe
    compute: float
    """Seconds of a step."""
    memory: int
    """Bytes of the node's memory tier."""
    folder: str = ""
    """Where each rank leaves its account."""
    limit: float = 0.0
    """Seconds after which a rank says where it is, and ends."""

    def write(self, path: Path) -> None:
        """Store it for the ranks."""
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Job:
        """Return what was stored."""
        words = json.loads(path.read_text())
        return cls(**{**words, "urls": tuple(words["urls"]), "recipe": Recipe(**words["recipe"])})


@dataclass(frozen=True, slots=True)
class EpochAccount:
    """One epoch on one rank; seconds of the clock that all processes of a machine share."""

    begin: float
    end: float
    wait: float
    """Seconds in which it waited for batches, the making of the iterator included."""
    stall: float
    """Seconds of them by the loader's own count, which leaves out the time in which ranks compare their samples."""
    steps: int


@dataclass(frozen=True, slots=True)
class Account:
    """What a rank saw."""

    epochs: tuple[EpochAccount, ...]
    stream: tuple[int, ...]
    """A sum over some voxels of each batch, in the order of delivery."""
    traffic: dict[str, dict[str, float]]
    """`LoaderStats.sources`, by kind of place."""
    close: float
    """Seconds that closing the loader took."""

    def write(self, path: Path) -> None:
        """Store it for the command."""
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Account:
        """Return what was stored."""
        words = json.loads(path.read_text())
        epochs = tuple(EpochAccount(**epoch) for epoch in words["epochs"])
        return cls(**{**words, "epochs": epochs, "stream": tuple(words["stream"])})
