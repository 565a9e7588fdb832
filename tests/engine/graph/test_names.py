"""Networks whose layers have the names of what the engine itself keeps."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from voxload.engine import Loopback, shard
from voxload.grid import ProcessGrid

NAMES = ("blocks", "grid", "agreed", "_plan", "_source", "_blocks", "_exchange", "_mirrored", "_chooser", "_flags")
GRID = ProcessGrid((2, 1, 1), 2)


class Named(nn.Module):
    """A convolution under a name, and another under another."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.add_module(name, nn.Conv3d(1, 2, 3, padding=1))
        self.name, self.last = name, nn.Conv3d(2, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 1, D, H, W)."""
        voxels: Tensor = self.last(torch.relu(self.get_submodule(self.name)(x)))
        return voxels


class Blocks(nn.Module):
    """Blocks of layers, as many call them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Conv3d(1, 2, 3, padding=1), nn.Conv3d(2, 1, 3, padding=1)])
        self.grid = nn.Conv3d(1, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 1, D, H, W)."""
        for block in self.blocks:
            x = block(x)
        voxels: Tensor = self.grid(x)
        return voxels


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_may_have_any_name(name: str) -> None:
    """Its results are those of the network in one piece."""
    _compare(Named(name))


def test_blocks_of_layers_are_no_blocks_of_volumes() -> None:
    """Both are there, under their own names; copies and pickles too."""
    _compare(Blocks())


def _compare(model: nn.Module) -> None:
    shape = (8, 6, 6)
    world = Loopback(GRID)
    x = torch.randn(1, 1, *shape)
    whole = model(x)
    nets = [shard(copy.deepcopy(model), GRID.at(rank), shape=shape, exchange=world.rank(rank)) for rank in range(2)]

    def work(rank: int) -> Tensor:
        own: Any = (..., *GRID.at(rank).block(shape).slices)
        found: Tensor = nets[rank](x[own])
        return found

    results = world.run(work)
    torch.testing.assert_close(torch.cat(list(results), 2), whole)
    assert [name for name, _ in nets[0].named_parameters()] == [name for name, _ in model.named_parameters()]
