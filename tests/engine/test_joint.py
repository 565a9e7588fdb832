"""Virtual ranks in one autograd graph, on the host and, where there is one, on a GPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.splitting.compare import error
from voxload.engine import Joint, shard
from voxload.engine.losses import VoxelLoss
from voxload.grid import ProcessGrid
from voxload.models import UNet3D

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
]
SHAPE = (16, 16, 8)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("variant", ["kits19", "lbann"])
def test_one_backward_pass_for_eight_ranks(variant: Any, device: str) -> None:
    """Losses and gradients of eight blocks equal those of the whole volume."""
    torch.manual_seed(1)
    model = UNet3D(1, 2, variant=variant, widths=(2, 4, 6)).double().to(device)
    x = torch.randn(2, 1, *SHAPE, dtype=torch.float64, device=device)
    target = torch.randint(0, 2, (2, *SHAPE), device=device)
    plain = copy.deepcopy(model)
    wanted = nn.functional.cross_entropy(plain(x), target)
    wanted.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
    world = Joint(ProcessGrid((2, 2, 2), 8))
    models = [copy.deepcopy(model) for _ in range(8)]
    networks = [
        shard(twin, world.grid.at(rank), shape=SHAPE, exchange=world.rank(rank)) for rank, twin in enumerate(models)
    ]

    def work(rank: int) -> Tensor:
        grid = world.grid.at(rank)
        own: Any = (..., *grid.block(SHAPE).slices)
        loss: Tensor = VoxelLoss(nn.CrossEntropyLoss(), grid, exchange=world.rank(rank))(
            networks[rank](x[own]), target[own]
        )
        return loss

    losses = torch.stack(world.run(work))
    losses.mean().backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
    assert error(losses.detach(), wanted.detach().expand(8)) <= 1e-12
    for name, weight in plain.named_parameters():
        assert weight.grad is not None
        total = torch.stack([twin.get_parameter(name).grad for twin in models]).sum(0)  # type: ignore[misc] # all have one
        scale = max(float(weight.grad.abs().max()), 1e-3)
        assert float((total - weight.grad).abs().max()) <= 1e-12 * scale
