"""First: how long a fresh process takes to its first item, beside one that imports torch alone."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.harness.children import environ
from bench.harness.findings import Outcome, Sheet, at_most
from bench.looping.cases import STORES
from voxload.benchmark.measure.turns import in_turns

MOST = 0.5
"""Seconds beyond importing torch."""
_TORCH = "import torch"
_ITEM = """
import torch, voxload
data = voxload.VolumeDataset(voxload.Catalog.read({folder!r}))
next(iter(voxload.DataLoader(data)))
"""


def measured(folder: Path, stores: Sequence[str], size: int, *, rounds: int) -> Outcome:
    """Time processes in turns, each with nothing kept in its home folder."""
    scripts = {"import torch": _TORCH}
    for store in stores:
        scripts[store] = _ITEM.format(folder=str(STORES[store].samples(folder, size, 8)))

    def run(name: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", scripts[name]], env=environ() | {"HOME": str(folder)}, check=True)
        return time.perf_counter() - begin

    turns = in_turns(tuple(scripts), rounds, run)
    beyond = {
        name: tuple(one - other for one, other in zip(found, turns.results["import torch"], strict=True))
        for name, found in turns.results.items()
    }
    rows = tuple((name, f"{turns.median(name):.3f}") for name in scripts)
    return Outcome(
        findings=tuple(at_most(f"{name}: first item beyond torch, s", MOST, beyond[name]) for name in stores),
        sheets=(Sheet("A fresh process", f"seconds; medians of {rounds} rounds", ("what", "s"), rows),),
        document={name: list(found) for name, found in turns.results.items()},
        others=turns.others,
    )
