"""Steps in which modules run again, by arithmetic, beside steps of networks that torch's own wrapper is around."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.plan.trace.test_volume import Residual
from voxload.engine.observe import Messages
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow, UNet3D
from voxload.plan import checkpoint_modules
from voxload.plan.costs.memory import memory_peak
from voxload.plan.trace.operation import Phase, StepTrace
from voxload.plan.trace.recompute import recomputed, regions
from voxload.plan.trace.step import trace_step

SHAPE = (64, 64, 64)
ALONE, SPLIT = ProcessGrid((1, 1, 1), 1), ProcessGrid((2, 2, 1), 4)
CASES: list[Any] = [
    pytest.param(lambda: UNet3D(1, 3, widths=(4, 8, 16)), 1, ("encoder.0", "bottom", "decoder.1"), id="UNet3D"),
    pytest.param(lambda: CosmoFlow(64, 4), 4, ("features.0", "features.1"), id="CosmoFlow"),
]


def _step(make: Any, channels: int, grid: ProcessGrid, paths: tuple[str, ...] = ()) -> StepTrace:
    with torch.device("meta"):
        model: nn.Module = make()
    return trace_step(model, grid, SHAPE, channels=channels, optimizer=torch.optim.Adam, recompute=paths)


def _work(trace: StepTrace) -> dict[Phase, int]:
    return {phase: sum(each.flops for each in trace.of(phase)) for phase in Phase}


def _received(trace: StepTrace) -> int:
    return sum(sum(each.exchanged.received) for each in trace.operations if isinstance(each.exchanged, Messages))


@pytest.mark.parametrize("grid", [ALONE, SPLIT], ids=["whole", "split"])
@pytest.mark.parametrize(("make", "channels", "paths"), CASES)
def test_arithmetic_is_near_what_torch_does(
    make: Any, channels: int, paths: tuple[str, ...], grid: ProcessGrid
) -> None:
    """Work, messages and memory; torch stops before operations at the end of a module that nothing needs."""
    plain, wrapped = _step(make, channels, grid), _step(make, channels, grid, paths)
    said = recomputed(plain, paths)
    assert len(regions(plain, paths)) == len(paths)
    forward, backward = _work(plain)[Phase.FORWARD], _work(plain)[Phase.BACKWARD]
    assert _work(wrapped)[Phase.FORWARD] == _work(said)[Phase.FORWARD] == forward
    assert backward < _work(wrapped)[Phase.BACKWARD] <= _work(said)[Phase.BACKWARD] <= forward + backward
    assert _received(plain) <= _received(wrapped) <= _received(said)
    assert (grid is ALONE) == (_received(plain) == _received(said))
    peaks = [memory_peak(each).use for each in (plain, wrapped, said)]
    assert peaks[2].total == pytest.approx(peaks[1].total, rel=0.1)
    assert peaks[1].total <= peaks[0].total
    assert peaks[2].kept < peaks[0].kept
    assert [each.name for each in wrapped.gradients] == [each.name for each in said.gradients]
    assert {each.path for each in wrapped.operations} <= {each.path for each in plain.operations}


def test_nothing_changes_without_modules() -> None:
    """A step is what it was; and of a module that is never called, nothing runs again."""
    plain = _step(Residual, 2, ALONE)
    assert recomputed(plain, []).operations == plain.operations
    assert recomputed(plain, ["nowhere"]).operations == plain.operations
    assert sum(each.nbytes for each in recomputed(plain, []).allocations) == sum(
        each.nbytes for each in plain.allocations
    )


def test_modules_are_named() -> None:
    """One that the network does not have is no typing error that goes unseen."""
    with pytest.raises(UsageError, match=r"'features\.9'"):
        checkpoint_modules(CosmoFlow(32, 1), ["features.9"])


def test_state_dicts_stay_what_they_were() -> None:
    """Of a network whose modules are wrapped, with the same result and the same gradients."""
    torch.manual_seed(1)
    plain, wrapped = CosmoFlow(32, 2).double(), CosmoFlow(32, 2).double()
    wrapped.load_state_dict(plain.state_dict())
    checkpoint_modules(wrapped, ["features.0", "head"])
    wrapped.load_state_dict(plain.state_dict())
    assert list(wrapped.state_dict()) == list(plain.state_dict())
    x = torch.randn(2, 2, 32, 32, 32, dtype=torch.float64)
    for each in (plain, wrapped):
        torch.manual_seed(2)
        each(x).square().sum().backward()
    pairs = zip(plain.parameters(), wrapped.parameters(), strict=True)
    assert all(torch.equal(one.grad, other.grad) for one, other in pairs)  # type: ignore[arg-type] # both are there
