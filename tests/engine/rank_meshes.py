"""One rank of the test of meshes: grids and blocks in torch's words, and back.

Run as ``rank_meshes.py RANK RANKS FOLDER``. What each found is written to ``FOLDER/report-RANK.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from tests.engine.rank_start import meet, refused
from voxload.engine.device_mesh import from_dtensor, grid_of, mesh_of, to_dtensor
from voxload.grid import ProcessGrid

SHAPE = (4, 5, 6)


def main(rank: int, ranks: int, folder: Path) -> None:
    """Check everything on one rank."""
    meet(rank, ranks, folder)
    grid = ProcessGrid((1, 1, 2), ranks, rank)
    mesh = mesh_of(grid, "cpu")
    report: dict[str, Any] = {"round": grid_of(mesh) == grid}
    named = init_device_mesh("cpu", (1, 2, 2), mesh_dim_names=("dp", "tall", "wide"))
    report["named"] = grid_of(named, ("deep", "tall", "wide")).spatial

    torch.manual_seed(0)
    whole = torch.randn(2 * grid.groups, 3, *SHAPE, dtype=torch.float64)
    own = (slice(2 * grid.group, 2 * grid.group + 2), slice(None), *grid.block(SHAPE).slices)
    block = whole[own].clone().requires_grad_()
    made = to_dtensor(block, mesh, SHAPE)
    report["whole"] = torch.equal(made.full_tensor(), whole)
    # Not of what DTensor multiplies: on a mesh of four axes it weighs 30,000 ways to do so, which takes 8 s a rank.
    total: Any = made.full_tensor().square().sum()
    total.backward()
    report["gradient"] = bool(torch.equal(block.grad, 2 * block.detach()))  # type: ignore[arg-type] # it has one
    report["back"] = torch.equal(from_dtensor(made), block)
    same = to_dtensor(block.detach(), mesh, SHAPE, samples=False)
    report["same"] = tuple(same.shape) == (2, 3, *SHAPE)
    given = distribute_tensor(whole, mesh, [Shard(0), Shard(2), Shard(3), Shard(4)])
    report["theirs"] = torch.equal(from_dtensor(given), block)

    turned = DeviceMesh("cpu", torch.arange(ranks).reshape(2, 2), mesh_dim_names=("w", "dp"))
    report["refused"] = [
        refused(lambda: grid_of(turned)),
        refused(lambda: grid_of(init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp",)))),
        refused(lambda: to_dtensor(block[..., :1], mesh, SHAPE)),
        refused(lambda: to_dtensor(block, named, (4, 6, 8), dims=("deep", "tall", "wide"))),
        refused(lambda: from_dtensor(distribute_tensor(whole, mesh, [Shard(0), Shard(2), Shard(3), Replicate()]))),
    ]
    line = init_device_mesh("cpu", (ranks,), mesh_dim_names=("w",))
    report["uneven"] = refused(lambda: to_dtensor(torch.zeros(1, 1, 4, 4, 2), line, (4, 4, 10)))
    (folder / f"report-{rank}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
