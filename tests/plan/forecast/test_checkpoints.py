"""Modules that are to run again: those that make a step fit, and no others."""

from __future__ import annotations

import pytest

from voxload.errors import UsageError
from voxload.plan.forecast.checkpoints import Checkpointer
from voxload.plan.forecast.exact import exact
from voxload.plan.forecast.forecast import Oracle
from voxload.plan.forecast.search import Besides, search
from voxload.plan.forecast.setups import Setup
from voxload.plan.forecast.training import Training
from voxload.plan.platform import files

TRAINING = Training("unet3d-lbann", (1, 64, 64, 64), 2)


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    """Return what knows a U-Net on Lassen."""
    return Oracle(TRAINING, files.load("lassen"))


@pytest.mark.long
def test_enough_runs_again_and_no_more(oracle: Oracle) -> None:
    """For less and less memory, in more and more time; none of the modules can be left out."""
    chooser = Checkpointer(oracle)
    setup = Setup((1, 1, 1), 2, 1)
    plain = oracle.forecast(setup)
    least = chooser.forecast(setup, 1)
    most, fewest = plain.memory.use.total, least.memory.use.total
    assert fewest < 0.8 * most
    before = 0.0
    for limit in (most, (2 * most + fewest) // 3, (most + 2 * fewest) // 3, fewest):
        found = chooser.forecast(setup, limit)
        assert found.memory.use.total <= limit
        assert bool(found.recompute) == (limit < most)
        assert found.time.total >= max(before, plain.time.total)
        before = found.time.total
        for path in found.recompute:
            fewer = [each for each in found.recompute if each != path]
            assert exact(oracle, setup, recompute=fewer)[0].memory.use.total > 0.95 * limit
    assert before < plain.time.total + 1.2 * plain.time.forward


def test_what_does_not_fit_runs_again(oracle: Oracle) -> None:
    """Where a rank has less than it needs, and if it may; the plan names modules, and the trace is the engine's."""
    setup = Setup((1, 1, 1), 1, 2)
    plain, least = oracle.forecast(setup), Checkpointer(oracle).forecast(setup, 1)
    tight = Oracle(TRAINING, oracle.platform, limit=(plain.memory.use.total + least.memory.use.total) // 2)
    with pytest.raises(UsageError, match="expected at most"):
        search(tight, [1])
    found = search(tight, [1], besides=Besides(recompute=True))
    best = found.best
    assert best.fits
    assert best.recompute
    assert found.plan("lassen").recompute == best.recompute
    assert best.memory.use.total == pytest.approx(Checkpointer(tight).forecast(best.setup).memory.use.total, rel=0.1)
    # Where memory is not short, nothing runs again.
    assert not search(oracle, [1], besides=Besides(recompute=True)).best.recompute
    assert search(oracle, [1, 2], besides=Besides(recompute=True), goal="memory").best.recompute
