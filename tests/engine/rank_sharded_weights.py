"""One rank of the test of sharded weights: trained under DDP and under FSDP2, saved and loaded.

Run as ``rank_sharded_weights.py RANK RANKS FOLDER``. What each found is written to ``FOLDER/report-RANK.json``.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.engine.forward.split_plan_nets import Deep
from tests.engine.rank_start import meet, refused
from voxload.engine import SplitPlan, shard, sharded_parameters
from voxload.grid import ProcessGrid

SHAPE = (8, 8, 8)
PLAN = SplitPlan.of({"second": "filter", "third": "channel", "apart": "filter", "up": "channel", "wide": "filter"})
STEPS = 3
WHOLE = StateDictOptions(full_state_dict=True)


def samples(group: int) -> tuple[Tensor, Tensor]:
    """Return the batch of a sample group."""
    drawn = torch.Generator().manual_seed(10 + group)
    return (
        torch.randn(2, 2, *SHAPE, dtype=torch.float64, generator=drawn),
        torch.randn(2, 3, generator=drawn).double(),
    )


def trained_whole(model: nn.Module, groups: int) -> nn.Module:
    """Return a model trained in one process, on the mean of the losses of all groups."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        optimiser.zero_grad()
        for group in range(groups):
            x, wanted = samples(group)
            ((model(x) - wanted).square().mean() / groups).backward()
        optimiser.step()
    return model


def trained(network: nn.Module, parameters: Any, grid: ProcessGrid) -> torch.optim.Optimizer:
    """Train a network on this rank's blocks."""
    optimiser = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    x, wanted = samples(grid.group)
    own: Any = (..., *grid.block(SHAPE).slices)
    block = x[own]
    for _ in range(STEPS):
        optimiser.zero_grad()
        (network(block) - wanted).square().mean().backward()
        optimiser.step()
    return optimiser


def worst(found: dict[str, Any], wanted: nn.Module) -> float:
    """Return the largest difference of weights from those of a whole model; infinity where names differ."""
    others = dict(wanted.named_parameters())
    if not set(others) <= set(found):
        return float("inf")
    return max(float((found[name] - others[name].detach()).abs().max()) for name in others)


def differentiated(network: nn.Module, grid: ProcessGrid) -> None:
    """Ask for gradients of parts that can be differentiated again."""
    x, _ = samples(grid.group)
    own: Any = (..., *grid.block(SHAPE).slices)
    loss = network(x[own]).square().sum()
    torch.autograd.grad(loss, [each for _, each in _parts(network)], create_graph=True)


def split(model: nn.Module, grid: ProcessGrid, **options: Any) -> nn.Module:
    """Return a copy of a model, split by the plan."""
    return shard(copy.deepcopy(model), grid, shape=SHAPE, plan=PLAN, shard_weights=True, **options)


def main(rank: int, ranks: int, folder: Path) -> None:
    """Check everything on one rank."""
    meet(rank, ranks, folder)
    grid = ProcessGrid((1, 1, 2), ranks, rank)
    model = Deep().double()
    whole = trained_whole(copy.deepcopy(model), grid.groups)

    # Ranks draw weights of their own: those of the first one count.
    other = copy.deepcopy(model)
    if rank:
        for weight in other.parameters():
            weight.data.normal_()
    network = split(other, grid)
    report: dict[str, Any] = {"own": {name: tuple(each.to_local().shape) for name, each in _parts(network)}}
    replicated = DistributedDataParallel(network)
    optimiser = trained(replicated, replicated.parameters(), grid)
    report["ddp"] = worst(get_model_state_dict(network, options=WHOLE), whole)
    moments: Any = get_optimizer_state_dict(network, optimiser, options=WHOLE)["state"]
    report["moments"] = {
        name: tuple(moments[name]["momentum_buffer"].shape) for name in ("second.weight", "first.weight")
    }

    again = split(model, grid, verify=True)
    set_model_state_dict(again, whole.state_dict(), options=WHOLE)
    report["loaded"] = worst(get_model_state_dict(again, options=WHOLE), whole)

    network = split(model, grid)
    mesh = init_device_mesh("cpu", (ranks,))
    fully_shard(network, mesh=mesh, ignored_params=sharded_parameters(network))
    trained(network, network.parameters(), grid)
    report["fsdp"] = worst(get_model_state_dict(network, options=WHOLE), whole)

    uneven = SplitPlan.of({"last": "filter"})
    tied = copy.deepcopy(model)
    tied.another = nn.Linear(12, 24)
    tied.another.weight = tied.wide.weight
    report["refused"] = [
        refused(lambda: shard(model, grid, shape=SHAPE, plan=uneven, shard_weights=True)),
        refused(lambda: shard(model, grid, shape=SHAPE, shard_weights=True)),
        refused(lambda: shard(model, grid, plan=PLAN, shard_weights=True)),
        refused(lambda: split(tied, grid)),
        refused(lambda: differentiated(split(model, grid), grid)),
    ]
    (folder / f"report-{rank}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


def _parts(network: nn.Module) -> list[tuple[str, Any]]:
    return [(name, weight) for name, weight in network.named_parameters() if hasattr(weight, "to_local")]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
