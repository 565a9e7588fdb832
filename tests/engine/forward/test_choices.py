"""Choices for networks whose own forward runs on blocks: how halos are joined, and columns of weights."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.engine.forward.onblocks_world import GRID, SHAPE, SPATIAL, TOLERANCE, World, evaluated, volume
from tests.engine.virtual import worst_error
from tests.support.splitting.functional import FunctionalUNet
from voxload.engine import Blocks
from voxload.engine.forward.inputs import Inputs, TensorSpec
from voxload.engine.forward.plan_cache import PlanCache, SplitOptions
from voxload.engine.forward.rules.channels import Columns
from voxload.engine.run import overlap
from voxload.engine.run.join import ROUNDS, Join


class Convolutions(nn.Module):
    """Convolutions of many kinds, behind one another; asks for extents."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv3d(1, 4, 3, padding=1)
        self.kinds = nn.ModuleList(
            [
                nn.Conv3d(4, 4, 5, padding=2, groups=2),
                nn.Conv3d(4, 4, (3, 1, 3), padding=(1, 0, 1), dilation=1, bias=False),
                nn.Conv3d(4, 4, 3, padding="same"),
                nn.Conv3d(4, 6, 3, stride=2, padding=1),
                nn.Conv3d(6, 4, 2),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return a smaller volume."""
        x = self.first(x * x.shape[2])
        for layer in self.kinds:
            x = layer(functional.silu(x))
        return x


@pytest.mark.long
@pytest.mark.parametrize("join", ["patch", "add", pytest.param("pad", marks=pytest.mark.long)])
@pytest.mark.parametrize("spatial", [(2, 1, 2), pytest.param((3, 2, 1), marks=pytest.mark.long)], ids=str)
def test_blocks_need_not_be_padded(join: str, spatial: Any) -> None:
    """Convolutions that begin with their block and join halos afterwards give the same numbers."""
    torch.manual_seed(4)
    x = torch.randn(2, 1, 18, 13, 20, dtype=torch.float64)
    errors = worst_error(Convolutions().double(), x, spatial, join=join, min_width=0)
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.long
def test_a_u_net_of_functions_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its convolutions do begin with their own block: all but those whose blocks are too thin."""
    begun, original = [], overlap._begun

    def counted(*given: Any) -> Any:
        begun.append(given)
        return original(*given)

    monkeypatch.setattr(overlap, "_begun", counted)
    errors = worst_error(FunctionalUNet(1, 2, (2, 4)).double(), volume(shape=(8, 6, 10)), (2, 1, 1), join="patch")
    assert max(errors.values()) <= TOLERANCE, errors
    assert len(begun) >= 2 * 2


def test_ranks_choose_by_measuring() -> None:
    """With join="auto" each rank tries every way, whatever the others do, and each pass is right."""
    world, x = World(evaluated(), shape=SHAPE, join="auto"), volume()
    wanted = world.whole(x)
    for _ in range(ROUNDS * len(Join) + 2):

        def work(rank: int) -> Any:
            found = world.nets[rank](world.block(rank, x))
            found.square().sum().backward()
            return found.detach()

        assert world.equals(world.loop.run(work), wanted)


class Head(nn.Module):
    """Flattens a volume, in two ways, before dense layers; asks for extents."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(1, 2, 3, padding=1)
        self.dense, self.bare = nn.Linear(2 * prod(SHAPE), 5), nn.Linear(prod(SHAPE), 3, bias=False)

    def forward(self, x: Tensor) -> Any:
        """Return numbers of samples, and of channels."""
        y = self.conv(x) * x.shape[2]
        return self.dense(y.flatten(1)), self.bare(y.reshape(y.shape[0], y.shape[1], -1)).relu()


@pytest.mark.few_cases(2)
@pytest.mark.filterwarnings("ignore:.*whole on every rank:RuntimeWarning")
@pytest.mark.parametrize("spatial", [(2, 1, 2), (1, 3, 1)], ids=str)
def test_columns_of_dense_layers(spatial: Any) -> None:
    """Each rank multiplies what it has with its columns of the weight."""
    torch.manual_seed(4)
    for columns in (True, False):
        errors = worst_error(Head().double(), volume(), spatial, columns=columns, min_width=0)
        assert max(errors.values()) <= TOLERANCE, errors


def test_columns_spare_the_gather_of_the_volume() -> None:
    """Nothing is made whole then."""
    blocks = Blocks.of(GRID, SHAPE)
    inputs = Inputs((TensorSpec((2, 1, *blocks.box((0, 0, 0)).shape), torch.float32, torch.device("cpu")),), {})
    planned = {
        columns: PlanCache(model := Head(), SplitOptions(GRID, blocks, columns=columns)).of(model, inputs, blocks).plan
        for columns in (True, False)
    }
    assert not planned[True].fallbacks
    assert sum(isinstance(step.action, Columns) for _, step in planned[True].sequence) == 2
    assert len(planned[False].fallbacks) == 2


def test_columns_under_autocast() -> None:
    """Products are in the type that one process has."""
    world = World(Head(), SPATIAL, shape=SHAPE, columns=True)
    every, wanted = world.autocast(volume())
    for found in every:
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == other.dtype == torch.bfloat16
            torch.testing.assert_close(one, other, rtol=0.05, atol=0.2)
