"""Result: a document under a short name, as reports speak of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from voxload.benchmark.measure.document import Document, Run
from voxload.benchmark.measure.record import Epoch
from voxload.display.description import Described, Description
from voxload.errors import DataError

LETTERS = 22
"""Letters of a name in a plot."""


@dataclass(frozen=True, slots=True, repr=False)
class Result(Described):
    """One result of a report."""

    name: str
    """Its file's, made longer where two are alike."""
    short: str
    """The same for plots, of `LETTERS` letters at most."""
    document: Document

    @property
    def middle(self) -> Run:
        """The run whose throughput is the middle one; of two in the middle the slower."""
        speeds = self.document.values("samples_per_second")
        return self.document.runs[int(np.argsort(speeds, stable=True)[(len(speeds) - 1) // 2])]

    def _described(self) -> Description:
        return replace(self.document.description(name=self.name), name=type(self).__name__)

    def epochs(self, number: int) -> tuple[Epoch, ...]:
        """Return an epoch of the middle run as each of its ranks saw it."""
        return tuple(record.epochs[number] for record in self.middle.records)

    @property
    def epoch_count(self) -> int:
        """Epochs of the middle run."""
        return min(len(record.epochs) for record in self.middle.records)


def read_results(paths: Sequence[Path]) -> tuple[Result, ...]:
    """Return the results in files, each under a name of its own.

    Raises DataError when one has no run or a run without ranks: it has no figures then.
    """
    documents = [Document.read(path) for path in paths]
    for path, document in zip(paths, documents, strict=True):
        if not document.runs or not all(run.records for run in document.runs):
            raise DataError(f"{path}", found="no runs", expected="a result of voxload bench run with one or more")
    names = _names(paths)
    return tuple(Result(*found) for found in zip(names, _shorter(names), documents, strict=True))


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the files' stems; with their folders, or as they were given and counted, where two are alike."""
    ways = ([path.stem for path in paths], [f"{path.parent.name}/{path.stem}" for path in paths])
    counted = [f"{number}: {path.stem}" for number, path in enumerate(paths, 1)]
    return next((names for names in ways if len(set(names)) == len(names)), counted)


def _shorter(names: Sequence[str]) -> list[str]:
    """Return names without their middles where they are long, counted where that makes two alike."""
    found = [_cut(name, LETTERS) for name in names]
    if len(set(found)) == len(found):
        return found
    return [f"{place}: {_cut(name, LETTERS - 4)}" for place, name in enumerate(names, 1)]


def _cut(name: str, letters: int) -> str:
    half = (letters - 1) // 2
    return name if len(name) <= letters else f"{name[:half]}\N{HORIZONTAL ELLIPSIS}{name[-half:]}"
