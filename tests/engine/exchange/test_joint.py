"""Virtual ranks in one autograd graph, on the host and, where there is one, on a GPU."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.splitting.compare import error
from voxload.engine import Joint, shard
from voxload.engine.losses import DiceLoss, VoxelLoss
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow, UNet3D

SHAPE = (16, 16, 8)
TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5}
_ROOM = 4.0
"""Times the error of one process in bfloat16 that eight blocks may have: they round elsewhere, and not worse."""


def _loss_and_gradients(
    model: nn.Module, x: Tensor, target: Tensor, *, is_split: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss and the gradients by name, of one process or of eight virtual ranks."""
    if not is_split:
        plain = copy.deepcopy(model)
        loss = nn.functional.cross_entropy(plain(x), target)
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
        return loss.detach(), {
            name: weight.grad for name, weight in plain.named_parameters() if weight.grad is not None
        }
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
    assert error(losses.detach(), losses.detach()[0].expand(8)) <= 1e-6
    names = [name for name, _ in model.named_parameters()]
    totals = {name: torch.stack([twin.get_parameter(name).grad for twin in models]).sum(0) for name in names}  # type: ignore[misc] # all have one
    return losses.detach().mean(), totals


def _apart(found: tuple[Tensor, dict[str, Tensor]], wanted: tuple[Tensor, dict[str, Tensor]]) -> float:
    """Return the worst difference of loss and gradients, each relative to its largest value."""
    worst = float((found[0].double() - wanted[0].double()).abs() / wanted[0].double().abs())
    for name, gradient in wanted[1].items():
        scale = max(float(gradient.double().abs().max()), 1e-3)
        apart = (found[1][name].double() - gradient.double()).abs().max()
        worst = max(worst, float(apart.nan_to_num(nan=torch.inf)) / scale)
    return worst


def _case(variant: Any, dtype: torch.dtype, device: torch.device) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(1)
    model = UNet3D(1, 2, variant=variant, widths=(2, 4, 6)).to(device, dtype)
    x = torch.randn(2, 1, *SHAPE, dtype=torch.float64).to(device, dtype)
    return model, x, torch.randint(0, 2, (2, *SHAPE)).to(device)


@pytest.mark.long
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.long)], ids=str)
@pytest.mark.parametrize("variant", ["kits19", pytest.param("lbann", marks=pytest.mark.long)])
def test_one_backward_pass_for_eight_ranks(
    variant: Any, dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses and gradients of eight blocks equal those of the whole volume."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    model, x, target = _case(variant, dtype, device)
    found, wanted = (_loss_and_gradients(model, x, target, is_split=is_split) for is_split in (True, False))
    assert _apart(found, wanted) <= TOLERANCES[dtype]


@pytest.mark.gpu
@pytest.mark.long
def test_eight_ranks_round_no_worse_than_one(device: torch.device) -> None:
    """In bfloat16, eight blocks are about as far from float64 as one process is."""
    model, x, target = _case("lbann", torch.bfloat16, device)
    exact = _loss_and_gradients(copy.deepcopy(model).double(), x.double(), target, is_split=False)
    found, plain = (_loss_and_gradients(model, x, target, is_split=is_split) for is_split in (True, False))
    assert _apart(found, exact) <= _ROOM * _apart(plain, exact)


def test_every_tensor_is_where_the_volume_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of a device without memory meet none of the host, forward and backward, in any network or loss.

    It needs no GPU: torch refuses to mix devices, and says where a result would be.
    """
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)  # of this device torch knows nothing
    known = torch.get_autocast_dtype
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda kind: torch.float32 if kind == "meta" else known(kind))
    for network, shape in ((UNet3D(1, 2, widths=(2, 4, 6)), SHAPE), (CosmoFlow(32, 1, 2, dropout=0.5), (32, 32, 32))):
        world = Joint(ProcessGrid((2, 1, 1), 2))
        splits = [
            shard(copy.deepcopy(network), world.grid.at(rank), shape=shape, exchange=world.rank(rank)).to("meta")
            for rank in range(2)
        ]
        losses = torch.stack(world.run(functools.partial(_loss_elsewhere, splits, world, shape)))
        losses.mean().backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
        weights = [weight for split in splits for weight in split.parameters()]
        assert losses.device.type == "meta"
        assert all(weight.grad is not None and weight.grad.device.type == "meta" for weight in weights)


def _loss_elsewhere(splits: Sequence[nn.Module], world: Joint, shape: tuple[int, int, int], rank: int) -> Tensor:
    """Return the loss of a block without memory: both losses of volumes, or that of numbers."""
    grid, exchange = world.grid.at(rank), world.rank(rank)
    box = grid.block(shape).shape
    y: Tensor = splits[rank](torch.empty(2, 1, *box, device="meta"))
    if y.ndim == 2:
        return y.square().mean()
    truth = torch.zeros(2, *box, dtype=torch.int64, device="meta")
    entropy: Tensor = VoxelLoss(nn.CrossEntropyLoss(), grid, exchange=exchange)(y, truth)
    dice: Tensor = DiceLoss(grid, exchange=exchange)(y, truth)
    return entropy + dice
