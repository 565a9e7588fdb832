"""Operations that are told from those that were measured."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from voxload.engine.observe import Messages
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.plan.costs.kernels import ANY, KernelPoints, kind_of, measured, point_of
from voxload.plan.costs.workspace import workspace_of
from voxload.plan.trace.operation import Operation, Phase, StepTrace
from voxload.plan.trace.step import trace_step

OVERHEADS = {Phase.FORWARD: 1e-6, Phase.BACKWARD: 2e-6, Phase.UPDATE: -1.0}


def _trace(model: nn.Module, shape: tuple[int, int, int], *, channels: int, batch: int = 1) -> StepTrace:
    alone = ProcessGrid((1, 1, 1), 1)
    return trace_step(model, alone, shape, channels=channels, batch=batch, optimizer=torch.optim.Adam)


def _plain(name: str = "aten.relu", *, moved: int = 1000, phase: Phase = Phase.FORWARD, **other: Any) -> Operation:
    given: dict[str, Any] = {"flops": 0, "exchanged": None} | other
    shape = ((moved // 8,),)
    return Operation(name, phase, "", shape, shape, "float32", (), given["flops"], moved, given["exchanged"])


def _points(kind: str, rate: float) -> KernelPoints:
    """Return operations that take a millisecond and their bytes at a rate."""
    numbers = [(float(10**power), float(10**power) / 2) for power in range(2, 8)]
    return KernelPoints(kind, tuple(numbers), tuple(1e-3 + moved / rate for moved, _ in numbers))


def test_named_operations_and_all_others() -> None:
    """What was not measured, or at other sizes, is told from common ones, and remembered with its seconds."""
    kernels = measured([_points("aten.relu", 1e9), _points(ANY, 1e8)], OVERHEADS, "cpu")
    assert kernels.seconds(_plain()) == pytest.approx(1e-3 + 1e-6 + 1e-6, rel=0.05)
    assert not kernels.unknown
    assert kernels.seconds(_plain("aten.gelu", moved=10**6)) == pytest.approx(11e-3, rel=0.05)
    assert kernels.seconds(_plain(moved=10**9)) == pytest.approx(10, rel=0.2)
    assert list(kernels.unknown) == ["aten.gelu", "aten.relu"]
    assert kernels.unknown["aten.gelu"] == pytest.approx(11e-3, rel=0.05)


def test_ranks_that_share_cores_are_as_much_slower() -> None:
    """And an operation never takes less than nothing, whatever was subtracted for who looked."""
    kernels = measured([_points(ANY, 1e9)], OVERHEADS, "cpu")
    kernels.slowdown = 4.0
    assert kernels.seconds(_plain()) == pytest.approx(4 * (1e-3 + 2e-6), rel=0.05)
    assert kernels.seconds(_plain(phase=Phase.UPDATE)) == 0.0


def test_messages_cost_their_copies() -> None:
    """A block is read and written to be joined with its halos; sums are nothing but messages."""
    kernels = measured([_points(ANY, 1e9)], OVERHEADS, "cpu")
    kernels.slowdown = 2.0
    assert kernels.seconds(_plain(moved=10**6, exchanged=Messages(0, (1,), (1,)))) == pytest.approx(4e-3, rel=0.05)


def test_convolutions_that_were_never_measured_are_refused() -> None:
    """Their time could be anything."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv3d(2, 4, 3, padding=1))
    convolution = next(each for each in _trace(model, (8, 8, 8), channels=2).operations if each.flops)
    kernels = measured([_points(ANY, 1e9)], OVERHEADS, "cpu")
    with pytest.raises(UsageError, match=r"never measured.*calibrate"):
        kernels.seconds(convolution)


@pytest.mark.parametrize(("batch", "backend"), [(1, "Slow3d"), (2, "Mkldnn")])
def test_torch_says_which_implementation_runs(batch: int, backend: str) -> None:
    """On the host one of several, whose speeds differ; and one unfolds what it slides over into columns."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.Conv3d(4, 6, 3, padding=1))
    trace = _trace(model, (8, 8, 8), channels=2, batch=batch)
    forward, second = (each for each in trace.of(Phase.FORWARD) if each.flops)
    assert kind_of(forward, "cpu") == f"aten.convolution {backend}"
    assert kind_of(forward, "cuda") == "aten.convolution cuda"
    assert point_of(second) == (6, 4, 27, batch * 512, 8, 1, 1, 2, 4, 4)
    backward = [each for each in trace.of(Phase.BACKWARD) if each.flops]
    assert [point_of(each)[6] for each in backward] == [2, 1]  # the input of the first layer needs no gradient
    assert workspace_of(second, "cpu") == (4 * 27 * 512 * 4 if backend == "Slow3d" else 0)
    assert workspace_of(second, "cuda") == 0


def test_convolutions_of_large_volumes_are_asked_for_without_memory() -> None:
    """Torch chooses by sizes; what is too large to be made is halved until it is not."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv3d(2, 4, 3, padding=1))
    forward = next(each for each in _trace(model, (2048, 2048, 2048), channels=2).operations if each.flops)
    assert kind_of(forward, "cpu") == "aten.convolution Mkldnn"
