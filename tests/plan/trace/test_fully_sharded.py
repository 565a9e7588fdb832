"""Steps under FSDP, told from steps whose weights are whole: what is kept, what is gathered, and what is updated."""

from __future__ import annotations

import pytest
import torch

from voxload.engine.observe import Total
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow
from voxload.plan.costs.memory import memory_peak
from voxload.plan.forecast.forecast import Oracle
from voxload.plan.forecast.pipelines import Pipelines
from voxload.plan.forecast.setups import Setup
from voxload.plan.forecast.training import Training
from voxload.plan.platform import files
from voxload.plan.trace.fully_sharded import GATHER, SCATTER, fully_sharded
from voxload.plan.trace.operation import Phase, StepTrace
from voxload.plan.trace.step import trace_step


@pytest.fixture(scope="module")
def plain() -> StepTrace:
    """Return a step of CosmoFlow."""
    with torch.device("meta"):
        model = CosmoFlow(32, 4)
    return trace_step(model, ProcessGrid((1, 1, 1), 1), (32, 32, 32), channels=4, optimizer=torch.optim.Adam)


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_rank_keeps_its_share(plain: StepTrace, ranks: int) -> None:
    """Of weights and state; all weights are gathered once and all gradients scattered once, as DDP's sum moves both."""
    found = fully_sharded(plain, ranks)
    whole = sum(each.nbytes for each in plain.gradients)
    assert found.weights == plain.weights - whole + -(-whole // ranks)
    assert found.state == -(-plain.state // ranks)
    assert not found.gradients
    exchanges = [each for each in found.operations if isinstance(each.exchanged, Total)]
    assert [(each.name, each.phase) for each in exchanges] == [(GATHER, Phase.FORWARD), (SCATTER, Phase.BACKWARD)]
    assert sum(each.exchanged.nbytes for each in exchanges if isinstance(each.exchanged, Total)) == whole
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert [each for each in found.of(phase) if each.exchanged is None] == list(plain.of(phase))
    before, after = (sum(each.moved for each in step.of(Phase.UPDATE)) for step in (plain, found))
    assert before / ranks <= after < 1.2 * before / ranks
    assert all(0 <= each.made <= each.freed <= len(found.operations) for each in found.allocations)
    left = [each for each in found.allocations if each.freed == len(found.operations)]
    state = sum(each.nbytes for each in left if found.operations[each.made].phase is Phase.UPDATE)
    assert state == pytest.approx(found.state, rel=0.01)
    assert sum(each.nbytes for each in left) - state == -(-whole // ranks)
    # What DDP has beside: state, its buckets and whole gradients.
    assert memory_peak(found).use.total < memory_peak(plain, replicas=ranks).use.total


def test_one_rank_is_left_as_it_is(plain: StepTrace) -> None:
    """It has nobody to share with."""
    assert fully_sharded(plain, 1) is plain


def test_forecasts_know_the_wrapper() -> None:
    """Less memory for more waiting; pipelines do not."""
    machine, setup = files.load("lassen"), Setup((1, 1, 1), 4, 1)
    ddp, fsdp = (
        Oracle(Training("cosmoflow", (4, 64, 64, 64), 4, wrapper=wrapper), machine) for wrapper in ("ddp", "fsdp")
    )
    one, other = ddp.forecast(setup), fsdp.forecast(setup)
    assert other.memory.use.state < one.memory.use.state
    assert other.memory.use.total < one.memory.use.total
    assert other.time.sums > 0
    assert other.time.gradients == 0
    assert other.time.update < one.time.update
    with pytest.raises(UsageError, match="plan pipelines without it"):
        Pipelines(fsdp)
    with pytest.raises(UsageError, match="--wrapper"):
        Training("cosmoflow", (4, 64, 64, 64), 4, wrapper="horovod")
