"""One rank of bench/lion.py: steps of CosmoFlow by several optimisers, in turns. Rank 0 prints what they took."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import lion_pytorch
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bench.optimising.links import DEVICE
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow
from voxload.parallel import Lion

PEER = "lion-pytorch under DDP"
KINDS: dict[str, dict[str, Any]] = {
    PEER: {},
    "exact": {"combine": "exact"},
    "majority": {"combine": "majority"},
    "majority, momentum 32": {"combine": "majority", "momentum": 32},
    "2 bits": {"combine": "p-bit", "bits": 2},
    "4 bits": {"combine": "p-bit", "bits": 4},
    "8 bits": {"combine": "p-bit", "bits": 8},
    "mean": {"combine": "mean"},
}


@dataclass(frozen=True, slots=True)
class Words:
    """What ranks are told."""

    size: int
    steps: int
    turns: int


class Trainer:
    """A network with one of the optimisers."""

    def __init__(self, kind: str, words: Words, grid: ProcessGrid) -> None:
        torch.manual_seed(0)
        model = CosmoFlow(words.size, 4, 4, variant="lbann", dropout=0.0)
        self.parameters = sum(each.numel() for each in model.parameters())
        self._model = DistributedDataParallel(model)
        options: dict[str, Any] = {"lr": 1e-5}
        if kind == PEER:
            self._optimiser: torch.optim.Optimizer = lion_pytorch.Lion(model.parameters(), **options)
        else:
            self._optimiser = Lion(model.parameters(), grid, **options, **KINDS[kind])
            self._optimiser.attach(self._model)
        drawn = torch.Generator().manual_seed(grid.rank)
        self._x = torch.rand(1, 4, *(words.size,) * 3, generator=drawn)
        self._y = torch.rand(1, 4, generator=drawn)
        self.seconds: list[float] = []
        self.sent: list[int] = []

    def run(self, steps: int) -> None:
        """Take steps, and note what each took and sent."""
        for _ in range(steps):
            dist.barrier()
            sent, start = _sent(), perf_counter()
            self._optimiser.zero_grad()
            nn.functional.mse_loss(self._model(self._x), self._y).backward()  # type: ignore[no-untyped-call]
            self._optimiser.step()
            self.seconds.append(perf_counter() - start)
            self.sent.append(_sent() - sent)


def _sent() -> int:
    """Return how many bytes this rank's link has sent."""
    return int(Path(f"/sys/class/net/{DEVICE}/statistics/tx_bytes").read_text())


def main() -> None:
    """Train by turns; print on rank 0."""
    rank, ranks = int(sys.argv[1]), int(sys.argv[2])
    words = Words(**json.loads(sys.argv[3]))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    grid = ProcessGrid((1, 1, 1), ranks, rank)
    trainers = {kind: Trainer(kind, words, grid) for kind in KINDS}
    for each in trainers.values():
        each.run(1)
        each.seconds.clear()
        each.sent.clear()
    for _ in range(words.turns):
        for each in trainers.values():
            each.run(words.steps)
    found: dict[str, Any] = {}
    for kind, each in trainers.items():
        slowest = torch.tensor(each.seconds)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        found[kind] = {"seconds": median(slowest.tolist()), "sent": median(each.sent)}
    if rank == 0:
        print(json.dumps({"parameters": trainers[PEER].parameters, "kinds": found}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
