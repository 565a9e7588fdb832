"""All ways of a network's calls: what any plan does is one of them, and each runs on tensors without data."""

from __future__ import annotations

from contextlib import nullcontext
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import interpolate

from tests.engine.forward.split_plan_nets import Deep
from tests.support.splitting.functional import FunctionalUNet
from voxload.engine import Blocks, SplitPlan
from voxload.engine.forward.inputs import Inputs, TensorSpec
from voxload.engine.forward.plan_cache import PlanCache, SplitOptions
from voxload.engine.forward.planning import ForwardPlan
from voxload.engine.ways.network import IN_SPACE, NetworkWays, Use, Uses
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

SHAPE = (8, 8, 8)
GRIDS = [(2, 1, 1), (1, 1, 3), (2, 2, 1)]


def _uses(spatial: tuple[int, ...]) -> list[Uses]:
    """Return space for all, and every other use along the first axis that cuts anything."""
    axis = next(place for place, count in enumerate(spatial) if count > 1)
    found = [IN_SPACE]
    for use in (Use.FILTER, Use.CHANNEL, Use.WHOLE):
        first, second, third = (use if place == axis else Use.SPACE for place in range(3))
        found.append((first, second, third))
    return found


def _planned(model: nn.Module, spatial: Any, layers: dict[str, Uses]) -> ForwardPlan:
    grid = ProcessGrid(spatial, prod(spatial))
    blocks = Blocks.of(grid, SHAPE)
    inputs = Inputs((TensorSpec((2, 2, *blocks.box(grid.coords).shape), torch.float32, torch.device("cpu")),), {})
    return PlanCache(model, SplitOptions(grid, blocks, plan=SplitPlan.of(layers))).of(model, inputs, blocks).plan


@settings(max_examples=24, phases=[Phase.generate])
@given(st.data(), st.sampled_from(GRIDS), st.sampled_from([Deep, lambda: FunctionalUNet(2, 4, (8, 16))]))
def test_what_a_plan_does_is_among_the_ways(data: st.DataObject, spatial: Any, make: Any) -> None:
    """Call by call: what it takes, what it brings that to, and what it gives; each way follows from others."""
    uses = _uses(spatial)
    with torch.device("meta"):
        model = make()
    found = NetworkWays(model, ProcessGrid(spatial, prod(spatial)), (2, 2, *SHAPE), uses=uses, min_width=0)
    paths = list(dict.fromkeys(each.call.path for each in found.calls if each.is_layer and each.call is not None))
    layers = {path: data.draw(st.sampled_from(uses)) for path in paths}
    try:
        plan = _planned(make(), spatial, layers)
    except UsageError as refusal:
        assert "cannot be dealt out" in str(refusal)  # noqa: PT017 - most plans are none
        return
    chosen: list[Any] = []
    for (call, step), each in zip(plan.sequence, found.calls, strict=False):
        assert each.call is not None
        maker, place = each.meets or (-1, 0)
        met = chosen[maker].results[place] if maker >= 0 else None
        assert (call.function, call.path) == (each.call.function, each.call.path)
        own = [
            way
            for way in each.ways
            if way.taken == step.taken
            and way.results == step.results
            and (met is None or way.beside in (None, met))
            and (not each.is_layer or way.uses == layers[call.path])
        ]
        assert own, (call.path, call.function, step.taken, step.results)
        assert [move and len(move.steps) for move in own[0].moves] == [move and len(move.steps) for move in step.moves]
        made = [chosen[maker].results[place] if maker >= 0 else None for maker, place in each.sources]
        assert all(one is None or one == other for one, other in zip(made, own[0].taken, strict=True))
        chosen.append(own[0])
    assert len(plan.sequence) == len(found.calls) - 1


def test_blocks_are_made_where_those_are_that_they_meet() -> None:
    """As deep as a decoder goes, for every cut in which the encoder's volume may be."""
    spatial, uses = (1, 1, 3), _uses((1, 1, 3))
    with torch.device("meta"):
        model = FunctionalUNet(2, 4, (8, 16))
    found = NetworkWays(model, ProcessGrid(spatial, 3), (2, 2, *SHAPE), uses=uses, min_width=0)
    resized = next(each for each in found.calls if each.call is not None and each.call.function is interpolate)
    assert resized.meets is not None
    ways = [way for way in resized.ways if way.taken[0].dims[4][0].bounds == (0, 1, 3, 4)]
    assert {way.results[0].dims[4][0].bounds for way in ways} >= {(0, 2, 5, 8), (0, 2, 6, 8)}
    for way in ways:
        if way.beside is not None and way.beside.dims[4][0].axis is not None:
            assert way.results[0].dims[4] == way.beside.dims[4]


def test_every_way_runs_on_shapes() -> None:
    """On each rank, with its backward pass; what it gives has the shape that its cut says."""
    for rank in range(2):
        grid = ProcessGrid((2, 1, 1), 2, rank)
        with torch.device("meta"):
            model = Deep()
        found = NetworkWays(model, grid, (2, 2, *SHAPE), uses=_uses((2, 1, 1)), min_width=0)
        for number, each in enumerate(found.calls):
            for way in each.ways:
                found.run(number, way, nullcontext())


def test_ways_that_are_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the layer, and how many there are."""
    monkeypatch.setattr("voxload.engine.ways.calls.MOST", 3)
    with torch.device("meta"):
        model = Deep()
    with pytest.raises(UsageError, match=r"choice for every layer.*ways to carry it out, expected 1 to 3"):
        NetworkWays(model, ProcessGrid((2, 1, 1), 2), (2, 2, *SHAPE), uses=_uses((2, 1, 1)), min_width=0)
