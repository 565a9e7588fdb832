"""Results as a run would write them, with times drawn from a seed: no storage is read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from voxload.benchmark.measure.document import Cold, Document, Run
from voxload.benchmark.measure.figures import figures
from voxload.benchmark.measure.record import Epoch, Kernel, Record, Steps
from voxload.benchmark.workload.workload import Emulation, Length, Samples, Share, Supply, Workload

BLOCK = 4 * 64**3 * 2
"""Bytes of a block: four channels of 64 x 64 x 64 voxels of two bytes."""
LABELS = (
    "warm cache: 83 % of the data set was in memory when the first epoch began",
    "small data set: 1.2 GB, less than the 8.4 GB of memory",
)


@dataclass(frozen=True)
class Recipe:
    """What a made-up result is made of."""

    ranks: int = 4
    nodes: int = 2
    epochs: int = 3
    steps: int = 12
    repetitions: int = 5
    seed: int = 0
    stall: float = 0.012
    """Seconds of a typical stall of the first epoch; later ones wait a fifth of it."""
    noise: float = 0.03
    """Spread of whole runs, as a share."""
    compute: float = 0.05
    """Seconds of computing in a step; 0 for none."""
    loader: str = "voxload"
    tells: bool = True
    """Whether the loader counts what it reads, and where from."""
    labels: tuple[str, ...] = LABELS
    facts: dict[str, Any] = field(default_factory=dict)
    """Of the host, in place of the usual ones."""


def document(recipe: Recipe) -> Document:
    """Return a result of several ranks, epochs and repetitions."""
    random = np.random.default_rng(recipe.seed)
    runs = tuple(_run(recipe, random, number) for number in range(recipe.repetitions))
    kind = "sleep" if recipe.compute else "none"
    workload = Workload(
        samples=Samples("data/universes", dataset="full"),
        share=Share(spatial=(2, 1, 1), batch_size=1),
        length=Length(epochs=recipe.epochs),
        supply=Supply(loader=recipe.loader, threads=4),
        emulation=Emulation(kind, str(recipe.compute)),
    )
    return Document(
        workload=workload,
        command=("voxload", "bench", "run", "data/universes", "--spatial", "2,1,1", "--compute-time", "0.05"),
        started="2026-05-04T03:02:01Z",
        hosts=tuple(_host(f"node{place}") | recipe.facts for place in range(recipe.nodes)),
        data={"samples": 24, "shape": [4, 128, 64, 64], "axes": "CDHW", "dtype": "<i2", "format": "hdf5",
              "chunks": [1, 64, 64, 64], "shards": None, "codecs": ["gzip"], "sample_bytes": 2 * BLOCK,
              "bytes": 48 * BLOCK, "stored_bytes": 20 * BLOCK},
        ranks=recipe.ranks,
        group_ranks=2,
        labels=recipe.labels,
        runs=runs,
    )  # fmt: skip


def constant(values: tuple[float, ...]) -> Document:
    """Return a small result whose runs deliver so many samples a second."""
    small = document(Recipe(ranks=2, nodes=1, epochs=1, steps=2, repetitions=1))
    (run,) = small.runs
    return replace(
        small,
        runs=tuple(replace(run, figures={**run.figures, "samples_per_second": value}) for value in values),
    )


def _host(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "processor": "A processor of 2 cores",
        "cores": 2,
        "memory_bytes": 8_400_000_000,
        "system": "Linux 6.1",
        "file_system": "ext4",
        "versions": {"python": "3.12.1", "numpy": "2.1.0", "h5py": "3.13.0"},
        "gpus": [],
    }


def _run(recipe: Recipe, random: np.random.Generator, number: int) -> Run:
    pace = float(np.exp(random.normal(0, recipe.noise)))
    records = tuple(_record(recipe, random, rank, pace) for rank in range(recipe.ranks))
    found = figures(records, group_size=2, warmup=1).as_dict()
    cold = Cold("fadvise", 0.004, is_verified=True, text="cold, verified: 0.4 % of the data set in memory")
    return Run(recipe.seed * 100 + number, cold, records, found)


def _record(recipe: Recipe, random: np.random.Generator, rank: int, pace: float) -> Record:
    epochs, now = [], 0.2
    for number in range(recipe.epochs):
        epochs.append(_epoch(recipe, random, now, number, pace))
        now += epochs[-1].wall + 0.3
    node = f"node{rank * recipe.nodes // recipe.ranks}"
    return Record(rank, node, tuple(epochs), float(random.uniform(0.2, 0.4)), 700_000_000 + rank * 10**7, 2 * 10**7)


def _epoch(recipe: Recipe, random: np.random.Generator, start: float, number: int, pace: float) -> Epoch:
    typical = recipe.stall * (1 if number == 0 else 0.2)
    stall = pace * random.lognormal(math.log(typical), 0.8, recipe.steps)
    stall[0] += 0.08
    compute = np.full(recipe.steps, recipe.compute)
    peers = pace * random.exponential(typical / 2, recipe.steps)
    took = stall + compute + peers
    steps = Steps(
        begin=tuple((start + np.concatenate([[0], np.cumsum(took)[:-1]])).tolist()),
        stall=tuple(stall.tolist()),
        compute=tuple(compute.tolist()),
        peers=tuple(peers.tolist()),
        samples=(1,) * recipe.steps,
        nbytes=(BLOCK,) * recipe.steps,
    )
    stored = BLOCK * recipe.steps * 5 // 12 if number == 0 else BLOCK * recipe.steps // 12
    kernel = Kernel(stored + 40_000, stored * 9 // 10, float(took.sum()) * 0.7)
    return Epoch(steps, float(took.sum()) + 0.01, kernel, _counts(recipe, stored), math.nan if number else 0.004)


def _counts(recipe: Recipe, stored: int) -> dict[str, Any]:
    if not recipe.tells:
        return {}
    whole = BLOCK * recipe.steps
    parts = {"storage": stored, "memory": whole // 3, "disk": 0, "peer": whole // 5}
    sources = {name: {"bytes": nbytes, "fetches": 3, "seconds": 0.1} for name, nbytes in parts.items()}
    return {"bytes_read": stored, "bytes_decoded": whole, "sources": sources}
