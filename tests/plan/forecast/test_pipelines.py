"""Setups of stages: where networks are cut, and what that takes, beside all other cuts and the engine's own traces."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from tests.support.examples import IS_THOROUGH
from voxload.engine import pipeline_cuts
from voxload.errors import UsageError
from voxload.plan import Plan
from voxload.plan.costs.speeds import Link
from voxload.plan.forecast.forecast import Oracle
from voxload.plan.forecast.pipelines import Pipelines
from voxload.plan.forecast.search import Besides, search
from voxload.plan.forecast.setups import Setup, pipelined
from voxload.plan.forecast.training import Training
from voxload.plan.platform import files

NETWORKS = {"cosmoflow": (4, 128, 128, 128), "unet3d-lbann": (1, 64, 64, 64)}
_FEW = 12 if IS_THOROUGH else 6
"""Places that all cuts are tried at."""


def _oracle(model: str, batch: int = 8) -> Oracle:
    return Oracle(Training(model, NETWORKS[model], batch), files.load("lassen"))


@pytest.fixture(scope="module", params=sorted(NETWORKS))
def oracle(request: pytest.FixtureRequest) -> Oracle:
    """Return what knows a network on Lassen."""
    return _oracle(request.param)


@pytest.fixture(scope="module")
def pipelines(oracle: Oracle) -> Pipelines:
    """Return what knows its stages."""
    return Pipelines(oracle)


def test_arithmetic_is_near_the_trace(pipelines: Pipelines) -> None:
    """Of two stages, whole and cut in space: time and memory to an eighth."""
    for setup in (Setup((1, 1, 1), 1, 4, 2, 4), Setup((2, 1, 1), 2, 4, 2, 4)):
        said = pipelines.forecast(setup)
        exact, step = pipelines.exact(setup, said.cuts)
        assert exact.cuts == said.cuts
        assert said.time.total == pytest.approx(exact.time.total, rel=0.125)
        assert said.memory.use.total == pytest.approx(exact.memory.use.total, rel=0.125)
        assert {each.path.partition(".")[0] for each in step.operations} - {""} == {"0", "1"}


def test_parts_add_up(pipelines: Pipelines) -> None:
    """To the step; and a step is no shorter than the work of the busiest stage, nor than one sample takes."""
    for stages, microbatches in ((2, 2), (2, 8), (3, 5)):
        found = pipelines.forecast(Setup((1, 1, 1), 1, microbatches, stages, microbatches))
        time = found.time
        assert time.waiting >= 0
        assert time.total == pytest.approx(
            time.forward + time.backward + time.update + time.halos + time.sums + time.gradients + time.waiting
        )
        more = pipelines.forecast(Setup((1, 1, 1), 1, 2 * microbatches, stages, 2 * microbatches)).time
        assert time.total < more.total < 2 * time.total
        assert more.waiting / more.total < time.waiting / time.total


@pytest.mark.parametrize(
    "model", [name if name == "cosmoflow" else pytest.param(name, marks=pytest.mark.long) for name in sorted(NETWORKS)]
)
def test_no_other_cuts_have_a_shorter_longest_stage(model: str) -> None:
    """Beside all pairs and triples of places, messages as good as free."""
    oracle = _oracle(model)
    pipelines = Pipelines(oracle)
    training = oracle.training
    names = [each.name for each in pipeline_cuts(training.network(), training.shape, channels=training.sample[0])]
    few = names[:: max(1, len(names) // _FEW)]
    setup = Setup((1, 1, 1), 1, 64, 3, 64)
    best, _ = pipelines.exact(setup)
    for cuts in combinations(few, 2):
        try:
            other, _ = pipelines.exact(setup, cuts)
        except UsageError:
            continue
        # With many microbatches a step is nearly all the longest stage.
        assert best.time.total <= other.time.total * 1.02, cuts


def test_what_cannot_be_staged_is_refused(pipelines: Pipelines) -> None:
    """More stages than there are weights for, and cuts of another network."""
    with pytest.raises(UsageError, match="that have weights each"):
        pipelines.forecast(Setup((1, 1, 1), 1, 100, 100, 100))
    with pytest.raises(UsageError, match="'elsewhere'"):
        pipelines.exact(Setup((1, 1, 1), 1, 2, 2, 2), ["elsewhere"])


def test_setups_of_stages_share_ranks_and_samples_out() -> None:
    """Equally, and with as many microbatches as stages at least."""
    found = list(pipelined((64, 64, 64), 8, [4, 8], 4))
    assert found
    for each in found:
        assert each.ranks in (4, 8)
        assert each.groups * each.samples == 8
        assert each.microbatches == each.samples >= each.stages >= 2
        assert each.grid.world_size == each.ranks
        for stage in range(each.stages):
            ranks = each.replicas(stage)
            assert len(ranks) == each.ranks // each.stages
            assert each.stage_grid(stage).rank in ranks
    assert Setup((1, 1, 1), 2, 4, 2, 4) in found


def test_pipelines_are_among_what_is_searched() -> None:
    """Beside the others, in order; a plan of one says where the network is cut."""
    oracle = _oracle("cosmoflow")
    found = search(oracle, [4], besides=Besides(stages=4), goal="memory")
    staged = [each for each in found.setups if each.setup.stages > 1]
    assert {each.setup.stages for each in staged} == {2, 4}
    assert all(len(each.cuts) == each.setup.stages - 1 for each in staged)
    assert len(search(oracle, [4]).setups) == len(found.setups) - len(staged)
    # Where gradients and halos are dear, and there is one tensor between stages, these are best.
    slow = replace(oracle.platform, within=Link(1e-6, 1e-6), between=Link(1e-6, 1e-6))
    assert (
        search(
            Oracle(Training("cosmoflow", (4, 32, 32, 32), 64), slow), [2], besides=Besides(stages=2)
        ).best.setup.stages
        == 2
    )


def test_a_plan_of_stages_names_cuts() -> None:
    """As many as lie between stages; and what the best is, the plan is."""
    oracle = _oracle("cosmoflow")
    found = search(oracle, [2], besides=Besides(stages=2))
    staged = next(each for each in found.setups if each.setup.stages == 2)
    made = replace(found, setups=(staged,)).plan("lassen")
    assert (made.stages, made.microbatches, made.cuts) == (2, staged.setup.microbatches, staged.cuts)
    assert made.ranks == 2
    for wrong in ({"cuts": ()}, {"microbatches": 3}, {"stages": 0}):
        with pytest.raises(UsageError, match="plan: found"):
            replace(made, **wrong)


def test_ranks_of_one_pipeline_read_the_same() -> None:
    """By the plan's grid for loaders: pipelines are its groups, and all stages have their place in them."""
    made = Plan("unet3d", (1, 64, 64, 64), "here", (1, 2, 1), 3, 4, stages=2, microbatches=4, cuts=("first",))
    assert made.ranks == 12
    for rank in range(made.ranks):
        own, grid = made.grid(rank), made.data_grid(rank)
        assert (own.groups, grid.groups) == (6, 3)
        assert grid.group == own.group // 2
        assert grid.coords == own.coords
        assert grid.world_size == 6
