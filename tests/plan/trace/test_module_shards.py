"""Steps that gather one module's weights at a time, told from steps whose weights are whole."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

from voxload.engine.observe import Total
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow
from voxload.plan.costs.memory import memory_peak
from voxload.plan.forecast.forecast import Oracle
from voxload.plan.forecast.setups import Setup
from voxload.plan.forecast.training import Training
from voxload.plan.platform import files
from voxload.plan.trace.fully_sharded import GATHER, SCATTER, fully_sharded
from voxload.plan.trace.module_shards import sharded_by_module
from voxload.plan.trace.operation import Phase, StepTrace
from voxload.plan.trace.step import trace_step


@pytest.fixture(scope="module")
def model() -> CosmoFlow:
    """Return a network of convolutions and dense layers, its weights without data."""
    with torch.device("meta"):
        return CosmoFlow(32, 4)


@pytest.fixture(scope="module")
def plain(model: CosmoFlow) -> StepTrace:
    """Return a step of it."""
    return trace_step(model, ProcessGrid((1, 1, 1), 1), (32, 32, 32), channels=4, optimizer=torch.optim.Adam)


@pytest.mark.parametrize("ranks", [2, 8])
def test_each_module_is_gathered_and_summed(model: CosmoFlow, plain: StepTrace, ranks: int) -> None:
    """Weights in front of either pass, gradients behind the one back; all else is as it was, in its order."""
    found = sharded_by_module(plain, ranks)
    sizes = {
        name: sum(each.numel() * each.element_size() for each in module.parameters(recurse=False))
        for name, module in model.named_modules()
    }
    known = {name: nbytes for name, nbytes in sizes.items() if nbytes}
    for wanted, phase in ((GATHER, Phase.FORWARD), (GATHER, Phase.BACKWARD), (SCATTER, Phase.BACKWARD)):
        moved = [each.exchanged for each in found.of(phase) if each.name == wanted]
        assert all(isinstance(each, Total) and each.is_world for each in moved)
        told = Counter(2 * each.nbytes for each in moved if isinstance(each, Total))
        assert told == Counter(2 * (nbytes // 2) for nbytes in known.values())
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert [each for each in found.of(phase) if each.exchanged is None] == list(plain.of(phase))
    shares = sum(-(-nbytes // ranks) for nbytes in known.values())
    assert found.weights == plain.weights - sum(known.values()) + shares
    assert found.state == -(-plain.state // ranks)
    assert not found.gradients


def test_no_more_than_two_modules_are_there_at_a_time(plain: StepTrace) -> None:
    """What is gathered is let go of; what is left behind the step are shares."""
    found = sharded_by_module(plain, 4)
    last = len(found.operations)
    assert all(0 <= each.made <= each.freed <= last for each in found.allocations)
    gathered = [each for each in found.allocations if each.name == GATHER]
    for place in range(last):
        assert sum(each.made <= place < each.freed for each in gathered) <= 2
    whole = sum(each.nbytes for each in plain.gradients)
    left = [each for each in found.allocations if each.freed == last]
    state = sum(each.nbytes for each in left if found.operations[each.made].phase is Phase.UPDATE)
    assert sum(each.nbytes for each in left) - state == pytest.approx(whole / 4, rel=0.001)


def test_many_equal_modules_need_little_at_a_time() -> None:
    """Two of sixteen, and the gradients of one, in place of all."""
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Conv3d(32, 32, 3, padding=1) for _ in range(16)))
    plain = trace_step(model, ProcessGrid((1, 1, 1), 1), (4, 4, 4), channels=32, optimizer=torch.optim.Adam)
    whole, parts = (memory_peak(way(plain, 8)).use for way in (fully_sharded, sharded_by_module))
    assert (parts.weights, parts.state) == pytest.approx((whole.weights, whole.state), rel=0.01)
    assert parts.total < whole.total / 2


def test_one_rank_is_left_as_it_is(plain: StepTrace) -> None:
    """It has nobody to share with."""
    assert sharded_by_module(plain, 1) is plain


def test_forecasts_know_it() -> None:
    """Weights that are gathered twice take more time than those that are gathered once."""
    machine, setup = files.load("lassen"), Setup((1, 1, 1), 4, 1)
    whole, parts = (
        Oracle(Training("cosmoflow", (4, 64, 64, 64), 4, wrapper=wrapper), machine).forecast(setup)
        for wrapper in ("fsdp", "fsdp-modules")
    )
    assert whole.time.sums < parts.time.sums
