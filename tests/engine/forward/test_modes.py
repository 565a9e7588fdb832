"""Fourier layers that keep few modes: what moves is the modes, and what is looked at is found out from the calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.networking.own import Modes
from tests.engine.forward.recorded import recorded
from voxload.engine import Blocks, Loopback, shard
from voxload.engine.exchange.in_process import LoopbackRank
from voxload.engine.forward.inputs import Inputs
from voxload.engine.forward.plan_cache import PlanCache, SplitOptions
from voxload.engine.forward.rules.fourier import modes_kept, positions_of
from voxload.grid import ProcessGrid

GRID = ProcessGrid((2, 2, 2), 8)


class Looks(nn.Module):
    """A transform, and what the test does with it."""

    def __init__(self, operation: Any) -> None:
        super().__init__()
        self.scale, self.operation = nn.Parameter(torch.ones(())), operation

    def forward(self, x: Tensor) -> Any:
        """Return what that gives."""
        return self.operation(torch.fft.rfftn(x * self.scale, dim=(2, 3, 4)))


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the bytes that every message and sum of virtual ranks sends; a sum sends all of it twice."""
    found: list[int] = []
    start, reduce = LoopbackRank.start, LoopbackRank.reduce

    def counted(seat: LoopbackRank, axis: int, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Any:
        found.extend(each.nbytes for each in outgoing.values())
        return start(seat, axis, outgoing, incoming)

    def summed(seat: LoopbackRank, tensor: Tensor, *, world: bool) -> None:
        found.append(2 * tensor.nbytes)
        reduce(seat, tensor, world=world)

    monkeypatch.setattr(LoopbackRank, "start", counted)
    monkeypatch.setattr(LoopbackRank, "reduce", summed)
    return found


@pytest.mark.long
@pytest.mark.parametrize(("extent", "modes"), [(64, 2), pytest.param(256, 8, marks=pytest.mark.long)])
def test_less_than_one_per_cent_of_the_volume_moves(extent: int, modes: int, moved: list[int]) -> None:
    """All messages of all eight ranks, beside the volume that is transformed: 16 modes of 256^3 in the long one."""
    torch.manual_seed(0)
    model = Modes(modes).eval()
    x = torch.randn(1, 1, extent, extent, extent)
    world = Loopback(GRID)
    nets = [shard(model, GRID.at(rank), shape=x.shape[2:], exchange=world.rank(rank)) for rank in range(8)]
    blocks: list[Any] = [(..., *GRID.at(rank).block(x.shape[2:]).slices) for rank in range(8)]
    with torch.no_grad():
        wanted = model(x)

        def work(rank: int) -> float:
            with torch.no_grad():
                found = nets[rank](x[blocks[rank]])
            return float((found - wanted[blocks[rank]]).abs().max())

        errors = world.run(work)
    assert max(errors) < 1e-4 * float(wanted.abs().max())
    transformed = 4 * x.nbytes  # the layer has four channels
    assert 0 < sum(moved) < 0.01 * transformed


def _kept(operation: Any) -> dict[str, Any]:
    recording = recorded(Looks(operation).double(), torch.empty(1, 2, 4, 6, 8, dtype=torch.float64))
    kept = modes_kept(recording)
    return {"kept": next(iter(kept.values()), None)}


def test_what_is_looked_at_is_found_out() -> None:
    """Through shifts and zeros of its shape; by slices alone, and not where anything else asks for it."""
    batch, channels = (0,), (0, 1)
    assert _kept(lambda y: y[:, :, :2, -1:, 1:4:2].abs())["kept"] == (batch, channels, (0, 1), (5,), (1, 3))
    both = _kept(lambda y: torch.zeros_like(y)[..., 0] + y[..., :1, :1, :1] + y[..., 2:3, :1, :1])["kept"]
    assert both == (batch, channels, (0, 2), (0,), (0,))
    shifted = _kept(lambda y: torch.fft.fftshift(y, dim=(2, 3))[..., 1:3, 2:4, :2].abs())["kept"]
    assert shifted == (batch, channels, (0, 3), (0, 5), (0, 1))
    assert _kept(lambda y: y[..., :2] * y.abs().mean())["kept"] is None
    assert _kept(lambda y: y)["kept"] is None
    assert _kept(lambda y: y[:, :, 0])["kept"] is None
    assert _kept(lambda y: y.mul_(2)[..., :1])["kept"] is None


def test_many_modes_count_as_made_whole() -> None:
    """What takes nearly all of a spectrum is no partial transform that costs nothing."""
    model = Looks(lambda y: y[..., :4].abs()).double()
    planned = PlanCache(model, SplitOptions(GRID, Blocks.of(GRID, (4, 6, 8)), 0)).of(
        model, Inputs.of((torch.empty(1, 2, 2, 3, 4, dtype=torch.float64),), {}), Blocks.of(GRID, (4, 6, 8))
    )
    (fallback,) = planned.plan.fallbacks
    assert fallback.nbytes == 2 * 4 * 6 * 4 * 16


def test_an_index_of_slices_has_positions() -> None:
    """Others have none here."""
    assert positions_of((..., slice(1, None)), (2, 3)) == [(0, 1), (1, 2)]
    assert positions_of(slice(0, 1), (2, 3)) == [(0,), (0, 1, 2)]
    assert positions_of((0, slice(1)), (2, 3)) is None
