"""Dropout on blocks: one mask however the volume is cut, fair, and anew with every pass."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from voxload.engine import Loopback, NoExchange, shard
from voxload.engine.layers.dropout import hashes
from voxload.grid import ProcessGrid

SHAPE = (9, 6, 7)
HOST = torch.device("cpu")


def _run(model: nn.Module, x: Tensor, spatial: tuple[int, int, int], seed: int) -> Tensor:
    """Return the whole result of a split model whose result is cut, put together."""
    ranks = spatial[0] * spatial[1] * spatial[2]
    grid = ProcessGrid(spatial, ranks)
    world = Loopback(grid)
    models = [
        shard(copy.deepcopy(model), grid.at(rank), shape=SHAPE, exchange=world.rank(rank)) for rank in range(ranks)
    ]
    torch.manual_seed(seed)

    own: list[Any] = [(..., *grid.at(rank).block(SHAPE).slices) for rank in range(ranks)]

    def work(rank: int) -> Tensor:
        found: Tensor = models[rank](x[own[rank]])
        return found.detach()

    whole = torch.empty_like(x)
    for rank, part in enumerate(world.run(work)):
        whole[own[rank]] = part
    return whole


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("layer", [nn.Dropout(0.3), nn.Dropout3d(0.5)], ids=str)
def test_every_cut_drops_the_same(layer: nn.Module) -> None:
    """Two layers in a row drop the same voxels on 1, 3, 4 and 8 ranks, others than each other, and others next time."""
    model = nn.Sequential(layer, nn.Conv3d(2, 2, 1), copy.deepcopy(layer))
    nn.init.ones_(model[1].weight)  # type: ignore[arg-type] # a convolution's
    nn.init.zeros_(model[1].bias)  # type: ignore[arg-type] # as above
    x = torch.ones(2, 2, *SHAPE)
    grid = ProcessGrid()
    alone = shard(copy.deepcopy(model), grid, shape=SHAPE, exchange=NoExchange(grid))
    torch.manual_seed(4)
    wanted = alone(x).detach()
    for spatial in ((3, 1, 1), (1, 2, 2), (2, 2, 2)):
        assert torch.equal(_run(model, x, spatial, 4), wanted)
    assert not torch.equal(_run(model, x, (3, 1, 1), 5), wanted)
    assert not torch.equal(alone(x).detach(), wanted)


def test_the_share_and_the_scale_are_torchs() -> None:
    """So many are dropped, the others are scaled up, and evaluation leaves all as it is."""
    grid = ProcessGrid()
    for p in (0.0, 0.2, 0.9, 1.0):
        model = shard(nn.Sequential(nn.Dropout(p)), grid, shape=(40, 40, 40), exchange=NoExchange(grid))
        y = model(torch.ones(1, 2, 40, 40, 40))
        dropped = (y == 0).double().mean().item()
        assert dropped == pytest.approx(p, abs=0.006)
        kept = y[y != 0]
        assert not len(kept) or torch.allclose(kept, torch.tensor(1 / (1 - p)))
        assert torch.equal(model.eval()(torch.ones(1, 2, 40, 40, 40)), torch.ones(1, 2, 40, 40, 40))


def test_hashes_are_fair_and_independent() -> None:
    """Every bit is set in half of the numbers, and neighbours along each axis, or seeds, have nothing in common."""
    shape = (2, 3, 32, 32, 32)
    numbers = hashes(shape, (0,) * 5, torch.tensor(123456789012345), HOST)
    other = hashes(shape, (0,) * 5, torch.tensor(123456789012346), HOST)
    bits = torch.stack([(numbers >> bit) & 1 for bit in range(32)]).double()
    assert (bits.flatten(1).mean(1) - 0.5).abs().max() < 0.006
    fractions = numbers.double() / 2**32 - 0.5
    for dim in range(5):
        near = (fractions.narrow(dim, 0, shape[dim] - 1) * fractions.narrow(dim, 1, shape[dim] - 1)).mean() * 12
        assert abs(near.item()) < 0.02
    assert abs((fractions * (other.double() / 2**32 - 0.5)).mean().item() * 12) < 0.02
    part = hashes((1, 2, 5, 6, 7), (1, 1, 20, 3, 9), torch.tensor(123456789012345), HOST)
    assert torch.equal(part, numbers[1:2, 1:3, 20:25, 3:9, 9:16])
