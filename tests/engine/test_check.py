"""check and shard(verify=True): what is equal is called equal, and what the engine gets wrong is found and named."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import voxload
from voxload.engine import check, shard
from voxload.engine.exchange.in_process import LoopbackRank, NoExchange
from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow, UNet3D

GRID = ProcessGrid((2, 1, 2), 4)


def _normalised() -> nn.Module:
    """Return layers with halos, statistics, dropout and a result that is cut."""
    return nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.Dropout(0.5), nn.Conv3d(4, 2, 3, padding=1)
    )


class RandomHead(nn.Module):
    """Pools, and drops by a function, in training."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.dense = nn.AdaptiveAvgPool3d(1), nn.Linear(1, 2)

    def forward(self, x: Tensor) -> Any:
        """Return two numbers a sample."""
        return self.dense(functional.dropout(self.pool(x).flatten(1), 0.5, self.training))


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (_normalised(), (9, 4, 10)),
        pytest.param(UNet3D(2, 3, widths=(2, 4)), (8, 8, 8), marks=pytest.mark.long),
        pytest.param(CosmoFlow(32, 2, 2, dropout=0.5), (32, 32, 32), marks=pytest.mark.long),
    ],
    ids=["cut", "U-Net", "whole"],
)
def test_what_is_equal_is_called_equal(model: nn.Module, shape: tuple[int, ...]) -> None:
    """In both modes; the model, its gradients, its modes and torch's random numbers stay what they are."""
    model[0].eval() if isinstance(model, nn.Sequential) else None
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    modes = [module.training for module in model.modules()]
    found = check(model, shape, GRID, min_width=0)
    assert found.is_equal, str(found)
    assert set(found.modes) == {"training", "evaluation"}
    assert str(found).count("equal") == 2
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert all(weight.grad is None for weight in model.parameters())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


def _no_sum(seat: LoopbackRank, tensor: Tensor, *, world: bool) -> None:
    """Sum over nobody else."""


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    ("method", "named"),
    [
        ("reduce", {"training": "result", "evaluation": "equal"}),
        ("start", {"training": "result", "evaluation": "result"}),
    ],
)
def test_an_engine_that_is_wrong_is_found_out(
    monkeypatch: pytest.MonkeyPatch, method: str, named: dict[str, str]
) -> None:
    """Statistics of one block alone, and halos that never come: in the modes that use them."""
    nothing = NoExchange(GRID)
    monkeypatch.setattr(
        LoopbackRank, method, _no_sum if method == "reduce" else lambda _, *words: nothing.start(*words)
    )
    found = check(_normalised(), (8, 4, 8), GRID, min_width=0)
    assert not found.is_equal
    rows = {line.split()[0]: line for line in str(found).splitlines()}
    for mode, quantity in named.items():
        assert quantity in rows[mode].rpartition("  ")[2]
    assert "result in training" in found.difference
    with pytest.raises(InternalError, match=r"found result in training, .*; do not use it"):
        shard(_normalised(), GRID.at(0), shape=(64, 64, 64), verify=True, exchange=nothing)


def test_random_results_are_not_compared() -> None:
    """They differ by nature; evaluation, which draws none, is compared."""
    found = check(RandomHead(), (8, 8, 8), GRID, channels=1)
    assert found.modes["training"] is None
    assert found.modes["evaluation"] is not None
    assert found.is_equal
    assert "draws random numbers" in str(found)


def test_what_is_not_verified_is_said() -> None:
    """A head that draws random numbers in training, beside an evaluation that is compared."""
    exchange = NoExchange(GRID.at(0))
    with pytest.warns(UserWarning, match="RandomHead is not verified in training: forward draws random numbers"):
        shard(RandomHead(), GRID.at(0), verify=True, exchange=exchange)


def test_a_network_is_verified_where_it_is_split() -> None:
    """Over a volume that is smaller than the one that it is for, where none is named, or the only one that it takes."""
    grid, exchange = GRID.at(1), NoExchange(GRID.at(1))
    layers = nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.BatchNorm3d(2), nn.Conv3d(2, 1, 3, padding=1))
    assert shard(UNet3D(1, 2, widths=(2, 4)), grid, shape=(512, 512, 512), verify=True, exchange=exchange) is not None
    assert shard(CosmoFlow(32, 2, 2), grid, verify=True, exchange=exchange) is not None
    assert shard(layers, grid, verify=True, exchange=exchange) is not None


def test_what_cannot_be_compared_says_what_to_do() -> None:
    """A volume that the network does not take, one that is too large to try, and a network that is refused."""
    with pytest.raises(UsageError, match=r"no volume of shape \(16, 16, 16\) that it takes.*channels="):
        check(CosmoFlow(32, 2, 2), (16, 16, 16), GRID)
    fixed = nn.Sequential(nn.Flatten(), nn.Linear(256**3, 1, device="meta"))
    with pytest.raises(UsageError, match=r"no small volume.*verify a smaller network"):
        shard(fixed, GRID.at(0), shape=(256, 256, 256), verify=True, exchange=NoExchange(GRID.at(0)))
    with pytest.raises(UsageError, match="no split form"):
        check(nn.Sequential(nn.Conv3d(1, 1, 1), nn.LPPool3d(2, 2)), (8, 8, 8), GRID, gather_limit=0)


@pytest.mark.parametrize("call", [check, voxload.engine.explain, lambda model, _, grid: shard(model, grid)])
def test_what_is_no_network_is_said(call: Any) -> None:
    """Not an attribute that it lacks."""
    with pytest.raises(UsageError, match=r"model: found str, expected a torch\.nn\.Module"):
        call("unet3d", (8, 8, 8), GRID)


def test_it_is_a_public_name() -> None:
    """As the documentation has it."""
    assert voxload.engine.check is check


class Noise(nn.Module):
    """Adds noise that is drawn for the whole volume, in both modes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(1, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Any:
        """Return noise around what the convolution gives."""
        y = self.conv(x)
        return y + torch.randn_like(y) * torch.rand(y.shape[0], 1, 1, 1, 1, dtype=y.dtype, device=y.device)


@pytest.mark.filterwarnings("ignore:.*whole on every rank:RuntimeWarning")
def test_random_numbers_are_drawn_as_in_one_process() -> None:
    """From one seed; what draws them in another way, as dropout does, is not compared instead of called wrong."""
    found = check(Noise(), (9, 4, 10), GRID, min_width=0, channels=1)
    assert found.is_equal, str(found)
    assert not found.not_compared


class Single(nn.Module):
    """Normalises in single precision, whatever it is given, and makes single complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.turn = nn.Conv3d(1, 2, 3, padding=1), nn.Parameter(torch.randn(2, 1, 1, 1, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Any:
        """Return real numbers of the type of the volume."""
        y = self.conv(x)
        y = y * torch.rsqrt(y.float().square().mean((2, 3, 4), keepdim=True) + 1e-3).to(y.dtype)
        turned = torch.zeros(y.shape, dtype=torch.complex64) + y.to(torch.float32) * self.turn
        return turned.real.type_as(x) + turned.imag.type_as(x)


def test_single_precision_within_is_no_difference() -> None:
    """It would be one of 1e-7, which is no fault of the engine's."""
    found = check(Single(), (9, 4, 10), GRID, min_width=0, channels=1)
    assert found.is_equal, str(found)


@pytest.mark.long
def test_a_running_mean_of_rounding_is_no_difference() -> None:
    """Behind a normalisation a mean is zero; how far it is from that is measured by the spread beside it."""
    layers = nn.Sequential(nn.BatchNorm3d(2), nn.Conv3d(2, 3, 1, bias=False), nn.BatchNorm3d(3))
    found = check(layers, (9, 4, 10), GRID, min_width=0)
    assert found.is_equal, str(found)


class Timed(nn.Module):
    """Takes time steps, and a second volume."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.dense = nn.Conv3d(3, 2, 3, padding=1), nn.Linear(1, 2)

    def forward(self, x: Tensor, steps: Tensor, other: Tensor, scale: float) -> Any:
        """Return a volume."""
        shift: Tensor = self.dense(steps[:, None].to(x.dtype) * scale)
        return self.conv(torch.cat([x, other], 1)) + shift[:, :, None, None, None]


def test_what_forward_takes_beside_the_volume_is_compared_too() -> None:
    """Volumes are cut, vectors and numbers are whole."""
    args = (torch.tensor([1, 7]), torch.randn(2, 2, 9, 4, 10), 0.5)
    found = check(Timed(), (9, 4, 10), GRID, min_width=0, channels=1, args=args)
    assert found.is_equal, str(found)
    with pytest.raises(UsageError, match="args: found int, expected a tuple"):
        check(Timed(), (9, 4, 10), GRID, args=3)  # type: ignore[arg-type] # what a user may write


class InPlace(nn.Module):
    """Cannot go back: what its gradient needs is written over."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Any:
        """Return what no gradient can be taken of."""
        y = (x * self.scale).exp()
        y.mul_(x.shape[2])
        return y


def test_a_network_that_fails_by_itself_is_told_so() -> None:
    """It is no fault of the engine's."""
    with pytest.raises(UsageError, match="fails without voxload too"):
        check(InPlace(), (9, 4, 10), GRID, min_width=0, channels=1)
