"""Steps of a chain dealt out to stages: together they are the whole."""

from __future__ import annotations

from itertools import pairwise

import pytest

from voxload.plan.forecast.parted import PartedNetwork
from voxload.plan.forecast.setups import Setup
from voxload.plan.forecast.training import Training
from voxload.plan.trace.operation import Phase
from voxload.plan.trace.stages import ChainTrace

TRAINING = Training("unet3d-lbann", (1, 32, 32, 32), 2)
CUTS = ("encoder_0_second_relu", "bottom_second_relu", "decoder_1_up")


@pytest.fixture(scope="module")
def chain() -> ChainTrace:
    """Return the step of a U-Net in four parts."""
    return PartedNetwork(TRAINING, TRAINING.network(), CUTS).traced(Setup((1, 1, 1), 1, 1))


def test_stages_are_the_whole(chain: ChainTrace) -> None:
    """All operations in order, all memory, gradients, weights and state, each with one of them."""
    whole = chain.step
    for places in ((0, 4), (0, 2, 4), (0, 1, 2, 3, 4)):
        stages = [chain.stage(first, last) for first, last in pairwise(places)]
        assert sum(len(each.operations) for each in stages) == len(whole.operations)
        assert sum(len(each.allocations) for each in stages) == len(whole.allocations)
        assert sum(each.weights for each in stages) == whole.weights
        assert sum(each.state for each in stages) == pytest.approx(whole.state, abs=len(stages))
        assert {one.name for each in stages for one in each.gradients} == {each.name for each in whole.gradients}
        for each in stages:
            assert all(0 <= one.made <= one.freed <= len(each.operations) for one in each.allocations)
            assert all(0 < one.ready <= len(each.operations) for one in each.gradients)
            assert {one.phase for one in each.operations} == set(Phase)
    assert chain.stage(0, 4).operations == whole.operations


def test_operations_belong_to_the_part_that_asks_for_them(chain: ChainTrace) -> None:
    """Forward in order, backward the other way, and the update of each parameter where it is."""
    for phase, wanted in ((Phase.FORWARD, [0, 1, 2, 3]), (Phase.BACKWARD, [3, 2, 1, 0]), (Phase.UPDATE, [0, 1, 2, 3])):
        parts = [part for part, each in zip(chain.parts, chain.step.operations, strict=True) if each.phase is phase]
        assert list(dict.fromkeys(parts)) == wanted
        if phase is not Phase.UPDATE:  # what is kept is made for all parameters before any is updated
            assert parts == sorted(parts, reverse=phase is Phase.BACKWARD)
    for number in range(4):
        stage = chain.stage(number, number + 1)
        names = {each.path.partition(".")[0] for each in stage.of(Phase.FORWARD)}
        assert names - {""} == {str(number)}
        shapes = {shape for each in stage.of(Phase.UPDATE) for shape in each.shapes if len(shape) == 5}
        weights = {each.nbytes // 4 for each in stage.gradients}
        for shape in shapes:
            count = 1
            for extent in shape:
                count *= extent
            assert count in weights
