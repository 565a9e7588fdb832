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
from voxload.engine.exchange.loopback import LoopbackRank
from voxload.engine.exchange.none import NoExchange
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


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (_normalised(), (9, 4, 10)),
        (UNet3D(2, 3, widths=(2, 4)), (8, 8, 8)),
        (CosmoFlow(32, 2, 2, dropout=0.5), (32, 32, 32)),
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
    """Over a volume that is smaller than the one that it is for, or the only one that it takes."""
    grid, exchange = GRID.at(1), NoExchange(GRID.at(1))
    assert shard(UNet3D(1, 2, widths=(2, 4)), grid, shape=(512, 512, 512), verify=True, exchange=exchange) is not None
    assert shard(CosmoFlow(32, 2, 2), grid, verify=True, exchange=exchange) is not None
    assert shard(UNet3D(1, 2, widths=(2, 4)), grid, verify=True, exchange=exchange) is not None


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
