"""The most memory of steps, what it is, and who is named where it does not fit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.models import UNet3D
from voxload.plan.costs.memory import memory_peak
from voxload.plan.trace.step import trace_step

GRID = ProcessGrid((1, 1, 2), 2)


def _model() -> nn.Module:
    with torch.device("meta"):
        return UNet3D(1, 2, widths=(4, 8, 16))


def test_parts_add_up() -> None:
    """Weights, state and gradients are what they are; buckets are there where gradients are averaged."""
    model = _model()
    trace = trace_step(model, GRID, (32,) * 3, channels=1, optimizer=torch.optim.Adam)
    alone, replicated = (memory_peak(trace, replicas=replicas, staging=1000) for replicas in (1, 2))
    weights = sum(each.nbytes for each in model.parameters())
    assert replicated.use.buckets == weights
    assert alone.use.buckets == 0
    assert replicated.use.total == alone.use.total + weights
    assert alone.use.state >= 2 * weights
    assert alone.use.staging == 1000
    step = alone.use.gradients + alone.use.kept + alone.use.working
    assert sum(each.nbytes for each in alone.held) == step
    assert alone.use.kept > step / 2


def test_a_large_update_is_no_part_of_the_state_before() -> None:
    """Of layers whose weights are most of it the update counts, and what the first step makes does not count twice."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 10**6))
    weights = sum(each.nbytes for each in model.parameters())
    use = memory_peak(trace_step(model, GRID, (16,) * 3, channels=2, optimizer=torch.optim.Adam)).use
    assert use.state == pytest.approx(2 * weights, rel=1e-3)
    # Adam makes the root of a moment and divides by it: of the largest weight, one copy at a time, or two.
    assert 3 * weights <= use.total - use.gradients <= 6 * weights


def test_what_does_not_fit_is_named() -> None:
    """Layer, operation, tensor, and the parts by size."""
    found = memory_peak(trace_step(_model(), GRID, (32,) * 3, channels=1))
    found.require(found.use.total)
    with pytest.raises(UsageError, match=r"memory of a rank while .*: found .*kept .*; the largest tensor is .* in '"):
        found.require(found.use.total - 1)


def test_blocks_of_half_the_voxels_keep_half() -> None:
    """And their halos."""
    whole, half = (
        memory_peak(trace_step(_model(), ProcessGrid(each, 2 * each[1]), (32,) * 3, channels=1)).use
        for each in ((1, 1, 2), (1, 2, 2))
    )
    assert 0.5 * whole.kept <= half.kept <= 0.65 * whole.kept
