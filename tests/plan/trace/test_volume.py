"""Steps on blocks that follow from a step on whole volumes, beside the engine's own."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from voxload.engine.observe import Messages
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow, UNet3D
from voxload.plan.costs.memory import memory_peak
from voxload.plan.trace.operation import Phase, StepTrace
from voxload.plan.trace.step import trace_step, trace_volume
from voxload.plan.trace.volume import BATCH, VolumeTrace

GRIDS = [(2, 1, 1), (2, 2, 2), (4, 1, 2)]


class Residual(nn.Module):
    """Layers that the networks of ours do not have: pools that overlap, strides, dilation, a global mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv3d(2, 4, 5, padding=2), nn.Conv3d(4, 8, 3, stride=2, padding=1)
        self.wide = nn.Conv3d(8, 8, 3, padding=2, dilation=2)
        self.norm, self.pool, self.head = nn.BatchNorm3d(8), nn.AvgPool3d(3, 2, 1), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 3)."""
        y = self.down(functional.relu(self.first(x)))
        y = y + functional.silu(self.norm(self.wide(y)))
        numbers: Tensor = self.head(self.pool(y).mean((2, 3, 4)))
        return numbers


NETWORKS: list[Any] = [
    pytest.param(lambda: UNet3D(1, 3, widths=(4, 8, 16)), 1, 32, id="UNet3D"),
    pytest.param(lambda: CosmoFlow(32, 4), 4, 32, id="CosmoFlow"),
    pytest.param(Residual, 2, 32, id="Residual"),
]


def _traced(make: Any, channels: int, extent: int) -> tuple[nn.Module, VolumeTrace]:
    with torch.device("meta"):
        model: nn.Module = make()
    return model, trace_volume(model, (extent,) * 3, channels=channels, optimizer=torch.optim.Adam)


def _middle(spatial: tuple[int, int, int]) -> ProcessGrid:
    grid = ProcessGrid(spatial, prod(spatial))
    return grid.at(grid.rank_of(0, tuple(count // 2 for count in spatial)))


def _received(trace: StepTrace) -> int:
    return sum(sum(each.exchanged.received) for each in trace.operations if isinstance(each.exchanged, Messages))


@pytest.mark.parametrize(("make", "channels", "extent"), NETWORKS)
def test_whole_volumes_are_as_the_engine_has_them(make: Any, channels: int, extent: int) -> None:
    """Of one rank and any batch, every operation that computes, with its work, bytes and memory."""
    model, volume = _traced(make, channels, extent)
    found = volume.on_blocks((1, 1, 1), batch=3)
    exact = trace_step(
        model, ProcessGrid((1, 1, 1), 1), (extent,) * 3, channels=channels, batch=3, optimizer=torch.optim.Adam
    )
    heavy, others = (
        [(each.name, each.path, each.shapes, each.results, each.flops) for each in trace.operations if each.flops]
        for trace in (found, exact)
    )
    assert heavy == others
    assert _received(found) == _received(exact) == 0
    assert memory_peak(found).use == memory_peak(exact).use
    assert [each.name for each in found.gradients] == [each.name for each in exact.gradients]
    assert sum(each.moved for each in found.operations) == pytest.approx(
        sum(each.moved for each in exact.operations), rel=0.01
    )


@pytest.mark.parametrize("spatial", GRIDS, ids=str)
@pytest.mark.parametrize(("make", "channels", "extent"), NETWORKS)
def test_blocks_are_as_the_engine_has_them(make: Any, channels: int, extent: int, spatial: Any) -> None:
    """Work to a twentieth and memory to an eighth, of the first rank, which takes part in all, or one in the middle.

    What is received where blocks meet on fewer ranks is told more roughly.
    """
    model, volume = _traced(make, channels, extent)
    found = volume.on_blocks(spatial, batch=2)
    first, middle = (
        trace_step(model, grid, (extent,) * 3, channels=channels, batch=2, optimizer=torch.optim.Adam)
        for grid in (ProcessGrid(spatial, prod(spatial)), _middle(spatial))
    )
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        work = [sum(each.flops for each in trace.of(phase)) for trace in (found, first)]
        assert work[0] == pytest.approx(work[1], rel=0.05)
    peak, *others = (memory_peak(trace).use.total for trace in (found, first, middle))
    assert peak == pytest.approx(max(others), rel=0.125)
    most = max(map(_received, (first, middle)))
    assert 0.5 * most <= _received(found) <= 2.5 * most
    assert (found.weights, found.state) == (first.weights, first.state)


def test_every_batch_is_told_from_every_number_of_channels() -> None:
    """No tensor of a step keeps the batch that was traced; numbers of channels are what they were."""
    _, volume = _traced(lambda: UNet3D(1, 3, widths=(4, 8, 16)), 1, 32)
    found = volume.on_blocks((2, 1, 1), batch=5)
    sizes = {size for each in found.operations for shape in (*each.shapes, *each.results) for size in shape}
    assert not any(size and size % BATCH == 0 for size in sizes)
    convolution = next(each for each in found.operations if each.name == "aten.convolution")
    assert convolution.shapes[0][:2] == (5, 1)
    assert convolution.results[0][:2] == (5, 4)
