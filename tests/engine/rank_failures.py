"""One rank of the failure test: two sample groups of two blocks, in which things go wrong one after another.

Run as ``rank_failures.py RANK RANKS FOLDER``. What each rank saw is written to ``FOLDER/report-RANK.json``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from voxload.engine import P2P, shard
from voxload.errors import VoxloadError
from voxload.grid import ProcessGrid

SHAPE = (6, 4, 4)
BAD = 3
"""The rank that does everything wrong; its partner is rank 2."""
PATIENCE = 3.0
"""Seconds that the impatient exchange waits."""
LIMIT = 300.0
"""Seconds after which something hangs."""


def network(kernel: int = 3) -> nn.Module:
    """Return a small network with dropout in its head."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv3d(1, 2, kernel, padding=kernel // 2),
        nn.LeakyReLU(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(192, 32),
        nn.Dropout(0.5),
    )


def attempt(model: nn.Module, x: Tensor) -> dict[str, Any]:
    """Call the model; return its error, if any, and how long that took."""
    start = time.monotonic()
    try:
        model(x)
    except VoxloadError as error:
        return {"error": type(error).__name__, "text": str(error), "seconds": time.monotonic() - start}
    return {"error": None, "text": "", "seconds": time.monotonic() - start}


def masks(model: nn.Module, x: Tensor, size: int) -> list[bool]:
    """Return, for three calls, whether this rank's result equals that of the ranks of group 0 and of group 1."""
    equal = []
    for _ in range(3):
        found = model(x).detach()
        everyone = [torch.empty_like(found) for _ in range(size)]
        dist.all_gather(everyone, found)
        equal.append(torch.equal(everyone[0], everyone[1]) and torch.equal(everyone[2], everyone[3]))
    return equal


def main(rank: int, ranks: int, folder: Path) -> None:
    """Run every case; the last one ends rank BAD."""
    torch.set_num_threads(1)
    limit = timedelta(seconds=LIMIT)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'world'}", rank=rank, world_size=ranks, timeout=limit
    )
    grid = ProcessGrid((2, 1, 1), ranks, rank)
    bad = rank == BAD
    torch.manual_seed(100 + rank)
    whole = torch.randn(2, 1, *SHAPE)
    x = whole[(slice(None), slice(None), *grid.block(SHAPE).slices)]
    model = DistributedDataParallel(shard(network(), grid, shape=SHAPE))
    torch.manual_seed(200 + rank)
    # The groups have different samples but the blocks of a group are random too: only the masks are compared.
    report: dict[str, Any] = {"masks": masks(model, x, ranks)}
    split = shard(network(), grid, shape=SHAPE)
    other = shard(network(5 if bad else 3), grid, shape=SHAPE)
    hasty = shard(
        network(), grid, shape=SHAPE, exchange=P2P(grid, timeout=PATIENCE if rank // 2 == BAD // 2 else LIMIT)
    )
    report["block"] = attempt(split, x[:, :, 1:] if bad else x)
    report["after"] = attempt(split, x)
    report["network"] = attempt(other, x)
    if bad:
        while not (folder / "was-late").exists():
            time.sleep(0.01)
    else:
        report["late"] = attempt(hasty, x)
        if rank // 2 == BAD // 2:
            (folder / "was-late").touch()
    (folder / f"report-{rank}.json").write_text(json.dumps(report))
    attempt(split, x)
    if bad:
        os._exit(0)
    report["lost"] = attempt(split, x)
    (folder / f"report-{rank}.json").write_text(json.dumps(report))
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
