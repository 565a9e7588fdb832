"""Times of steps that can be worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from voxload.engine.observe import Messages, Total
from voxload.grid import ProcessGrid
from voxload.models import UNet3D
from voxload.plan.costs.speeds import Fabric, Link, Roofline
from voxload.plan.costs.timeline import BUCKET, FIRST_BUCKET, StepTime, buckets, step_time
from voxload.plan.trace.operation import Gradient, Operation, Phase, StepTrace
from voxload.plan.trace.step import trace_step

KERNELS = Roofline(flops=100.0, bandwidth=10.0, launch=1.0)
FABRIC = Fabric(4, within=Link(0.5, 0.1), between=Link(2.0, 1.0))


def _operation(phase: Phase = Phase.FORWARD, *, flops: int = 0, moved: int = 0, exchanged: Any = None) -> Operation:
    return Operation("aten.any", phase, "", (), (), "float32", (), flops, moved, exchanged)


def _trace(operations: list[Operation], gradients: list[Gradient] | None = None) -> StepTrace:
    return StepTrace(tuple(operations), (), tuple(gradients or ()), 0, 0)


def test_arithmetic_or_memory_bounds_a_kernel() -> None:
    """Whichever takes longer, behind the launch."""
    assert KERNELS.seconds(_operation(flops=1000, moved=10)) == 11.0
    assert KERNELS.seconds(_operation(flops=100, moved=100)) == 11.0


def test_messages_are_waited_for() -> None:
    """Along a line within a node, along one between nodes, and a sum over the group in a ring."""
    grid = ProcessGrid((2, 1, 4), 8)
    operations = [
        _operation(exchanged=Messages(2, (10,), (10, 20))),
        _operation(exchanged=Messages(0, (10,), (10,))),
        _operation(exchanged=Messages(0, (), ())),
        _operation(exchanged=Total(16, is_world=False)),
    ]
    found = step_time(_trace(operations), KERNELS, FABRIC, grid)
    # All four ranks of a node send to the other node at once.
    assert found.halos == pytest.approx(0.5 + 30 * 0.1 + 2.0 + 10 * 1.0 * 4)
    assert found.sums == pytest.approx(2 * 7 * (2.0 + 2 * 1.0))
    assert found.total == pytest.approx(found.halos + found.sums)


def test_one_link_of_a_node_is_shared_by_those_who_cross() -> None:
    """Of a line over two nodes, the two in the middle do, each alone on its node."""
    messages = Messages(2, (10,), (10,))
    assert FABRIC.along(2, ProcessGrid((1, 1, 8), 8, 3)).exchange(messages) == pytest.approx(2.0 + 10 * 1.0)
    assert FABRIC.along(2, ProcessGrid((1, 1, 8), 16, 12)).exchange(messages) == pytest.approx(2.0 + 10 * 1.0)


def test_gradients_travel_behind_the_backward_pass() -> None:
    """The first bucket while the rest is computed, the last one with nothing to hide behind."""
    seconds = 2.0 * 3 / 4
    fabric = Fabric(4, within=Link(0.0, 1 / FIRST_BUCKET), between=Link(0.0, 1.0))
    operations = [_operation(Phase.BACKWARD) for _ in range(10)]
    gradients = [Gradient("last", FIRST_BUCKET, 2), Gradient("first", FIRST_BUCKET // 2, 10)]
    found = step_time(_trace(operations, gradients), KERNELS, fabric, ProcessGrid((1, 1, 4), 4))
    assert found.backward == 10.0
    assert found.gradients == pytest.approx(seconds / 2)
    assert found.hidden == pytest.approx(seconds)
    slow = Fabric(4, within=Link(0.0, 8 / FIRST_BUCKET), between=Link(0.0, 1.0))
    found = step_time(_trace(operations, gradients), KERNELS, slow, ProcessGrid((1, 1, 4), 4))
    assert found.gradients == pytest.approx(2.0 + 8 * seconds + 4 * seconds - 10.0)


def test_buckets_are_those_of_ddp() -> None:
    """A small one first, so that messages begin early."""
    sizes = [FIRST_BUCKET // 2, FIRST_BUCKET // 2, BUCKET, 5, 6]
    found = list(buckets([Gradient(str(place), size, place + 1) for place, size in enumerate(sizes)]))
    assert found == [(FIRST_BUCKET, 2), (BUCKET, 3), (11, 5)]


def test_a_network_on_more_ranks_computes_less_and_waits_more() -> None:
    """Of a U-Net, blocks halve the time for computing; halos and sums are what is added."""
    with torch.device("meta"):
        model = UNet3D(1, 2, widths=(2, 4, 6))
    kernels = Roofline(flops=1e9, bandwidth=1e8)
    fabric = Fabric(8, within=Link(1e-5, 1e-9), between=Link(1e-4, 1e-8))
    times: list[StepTime] = []
    for spatial in ((1, 1, 1), (2, 1, 1), (2, 2, 2)):
        grid = ProcessGrid(spatial, spatial[0] * spatial[1] * spatial[2])
        times.append(step_time(trace_step(model, grid, (32,) * 3, channels=1), kernels, fabric, grid))
    one, two, eight = times
    assert one.halos == one.sums == one.gradients == 0
    assert 0.5 <= two.forward / one.forward <= 0.65
    assert eight.forward < two.forward
    assert 0 < two.halos < eight.halos
    assert two.sums > 0
