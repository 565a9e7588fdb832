"""One rank of the equality test: trains CosmoFlow split in several ways and compares with one process.

Run as ``rank_equality.py RANK RANKS FOLDER``. FOLDER holds ``reference.pt``; the worst relative errors of this
rank are written to ``FOLDER/report-RANK.json``.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from voxload.engine import shard
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow


def error(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Return the largest difference, relative to the largest wanted value of all tensors."""
    if found.keys() != wanted.keys():
        raise KeyError(f"{sorted(found)} instead of {sorted(wanted)}")
    scale = max(tensor.abs().max().item() for tensor in wanted.values())
    differences = torch.stack([(found[name] - wanted[name]).abs().max().double() for name in wanted])
    # `max` of Python passes over a NaN that is not its first value.
    return differences.max().nan_to_num(nan=torch.inf).item() / scale


def train(grid: ProcessGrid, reference: dict[str, Any]) -> dict[str, float]:
    """Train as one rank of `grid`; return the worst relative error of each quantity."""
    size = reference["size"]
    model = CosmoFlow(size, dropout=0.0).double()
    model.load_state_dict(reference["start"])
    network = DistributedDataParallel(shard(model, grid))
    optimizer = torch.optim.SGD(network.parameters(), lr=reference["lr"], momentum=0.9)
    share = len(reference["x"]) // grid.groups
    samples = slice(grid.group * share, (grid.group + 1) * share)
    x = reference["x"][(samples, slice(None), *grid.block((size,) * 3).slices)]
    target = reference["target"][samples]
    worst = dict.fromkeys(("forward", "loss", "gradients", "weights"), 0.0)
    for step, wanted in enumerate(reference["steps"]):
        optimizer.zero_grad()
        found = network(x)
        loss = (found - target).square().mean()
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total)
        gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        worst["forward"] = max(
            worst["forward"], error({"forward": found.detach()}, {"forward": wanted["forward"][samples]})
        )
        mean = {"loss": total / grid.world_size}
        worst["loss"] = max(worst["loss"], error(mean, {"loss": wanted["loss"]}))
        worst["gradients"] = max(worst["gradients"], error(gradients, wanted["gradients"]))
        optimizer.step()
        if step == len(reference["steps"]) - 1:
            worst["weights"] = error(dict(network.module.state_dict()), reference["end"])
    return worst


def main(rank: int, folder: Path) -> None:
    """Take part in every configuration that has a place for this rank."""
    torch.set_num_threads(1)
    reference = torch.load(folder / "reference.pt")
    report = {}
    for number, (world, spatial) in enumerate(reference["configurations"]):
        if rank >= world:
            continue
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder / f'world-{number}'}",
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=120),
        )
        report[f"{world} {spatial}"] = train(ProcessGrid(tuple(spatial), world, rank), reference)
        dist.destroy_process_group()
    (folder / f"report-{rank}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[3]))
