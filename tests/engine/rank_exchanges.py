"""One rank of the exchanges' test: a U-Net over 4 ranks by every exchange and way of joining halos.

Run as ``rank_exchanges.py RANK RANKS FOLDER``. What each gave is written to ``FOLDER/report-RANK.json``.
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

from voxload.engine import P2P, AllToAll, Exchange, NoExchange, shard
from voxload.engine.losses import VoxelLoss
from voxload.errors import VoxloadError
from voxload.grid import ProcessGrid
from voxload.models import UNet3D

SPATIAL, SHAPE = (2, 2, 1), (16, 16, 8)
BAD = 3
"""The rank that is lost in the middle of a backward pass."""


def run(exchange: Exchange, grid: ProcessGrid, join: str) -> list[Tensor]:
    """Return result, loss and gradients of one pass."""
    torch.manual_seed(1)
    model = UNet3D(1, 2, variant="lbann", widths=(2, 4, 6)).double()
    network = shard(model, grid, shape=SHAPE, exchange=exchange, join=join)
    x = torch.randn(1, 1, *SHAPE, dtype=torch.float64)
    target = torch.randint(0, 2, (1, *SHAPE))
    own: Any = grid.block(SHAPE).slices
    block = x[(slice(None), slice(None), *own)].requires_grad_()
    found = network(block)
    loss = VoxelLoss(nn.CrossEntropyLoss(), grid, exchange=exchange)(found, target[(slice(None), *own)])
    loss.backward()
    assert block.grad is not None
    grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
    return [found.detach(), loss.detach(), block.grad, *grads]


def apart(found: list[Tensor], wanted: list[Tensor]) -> float:
    """Return the largest difference, relative to the largest value of each tensor or 1e-3."""
    pairs = zip(found, wanted, strict=True)
    # `max` of Python passes over a NaN that is not its first value.
    return max(float((a - b).abs().max().nan_to_num(nan=torch.inf)) / max(float(b.abs().max()), 1e-3) for a, b in pairs)


def lose(grid: ProcessGrid, folder: Path, report: dict[str, Any]) -> None:
    """End rank BAD in the middle of a backward pass; the others write down how that ended for them."""
    model = UNet3D(1, 2, variant="lbann", widths=(2, 4, 6))
    network = shard(model, grid, shape=SHAPE, exchange=P2P(grid, timeout=300))
    block = torch.randn(1, 1, *grid.block(SHAPE).shape)
    found = network(block)
    if grid.rank == BAD:
        weight = model.bottom.get_submodule("second.conv").get_parameter("weight")
        weight.register_hook(lambda _: _vanish())  # type: ignore[no-untyped-call] # torch leaves it untyped
    start = time.monotonic()
    try:
        found.square().sum().backward()
        report["lost"] = None
    except VoxloadError as error:
        report["lost"] = type(error).__name__
    report["seconds"] = time.monotonic() - start
    (folder / f"report-{grid.rank}.json").write_text(json.dumps(report))
    _vanish()


def _vanish() -> None:
    """End this process at once, as a lost node would."""
    os._exit(0)


def main(rank: int, ranks: int, folder: Path) -> None:
    """Run all exchanges, then lose a rank."""
    torch.set_num_threads(1)
    limit = timedelta(seconds=300)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'world'}", rank=rank, world_size=ranks, timeout=limit
    )
    grid = ProcessGrid(SPATIAL, ranks, rank)
    peers = P2P(grid)
    wanted = run(peers, grid, "pad")
    report: dict[str, Any] = {
        "again": all(map(torch.equal, run(peers, grid, "pad"), wanted)),
        "all to all": all(map(torch.equal, run(AllToAll(grid), grid, "pad"), wanted)),
        "patch": apart(run(peers, grid, "patch"), wanted),
        "add": apart(run(AllToAll(grid), grid, "add"), wanted),
        # Ranks that choose differently send the same messages.
        "mixed": apart(run(peers, grid, ("pad", "patch", "add")[rank % 3]), wanted),
        "none": apart(run(NoExchange(grid), grid, "pad"), wanted),
    }
    (folder / f"report-{rank}.json").write_text(json.dumps(report))
    dist.barrier()
    lose(grid, folder, report)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
