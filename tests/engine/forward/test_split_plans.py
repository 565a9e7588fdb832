"""Plans of layers: filters and channels that are cut, in any order and along any axes, beside the whole in float64."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.engine.forward.onblocks_world import TOLERANCE, World
from tests.engine.forward.split_plan_nets import Deep
from tests.engine.virtual import worst_error
from tests.support.splitting.functional import FunctionalUNet
from voxload.engine import Blocks, Loopback, Sharded, SplitPlan, explain, shard
from voxload.engine.arithmetic.split_plan import Use
from voxload.engine.exchange.in_process import NoExchange
from voxload.engine.forward.inputs import Inputs, TensorSpec
from voxload.engine.forward.plan_cache import PlanCache, SplitOptions
from voxload.engine.forward.planning import ForwardPlan
from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid

SHAPE = (8, 8, 8)
_WORDS = [use.value for use in Use]
GRIDS = [(2, 1, 1), (1, 1, 3), (2, 2, 1), (1, 2, 2), (2, 2, 2)]


LAYERS = ["first", "second", "third", "apart", "up", "wide", "last"]


@st.composite
def plans(draw: st.DrawFn, layers: list[str]) -> dict[str, str]:
    """Draw a use of every axis for some layers."""
    uses = st.lists(st.sampled_from(_WORDS), min_size=3, max_size=3).map(",".join) | st.sampled_from(_WORDS)
    return draw(st.dictionaries(st.sampled_from(layers), uses, max_size=len(layers)))


def _volume(channels: int = 2) -> Tensor:
    return torch.randn(2, channels, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.filterwarnings("ignore:.*whole on every rank:RuntimeWarning")
@settings(max_examples=16, phases=[Phase.generate])
@given(plans(LAYERS), st.sampled_from(GRIDS))
def test_any_plan_gives_what_one_process_gives(layers: dict[str, str], spatial: Any) -> None:
    """Results, all gradients and running statistics; what cannot be dealt out is refused by name."""
    try:
        errors = worst_error(Deep().double(), _volume(), spatial, plan=SplitPlan.of(layers), min_width=0)
    except UsageError as refusal:
        assert "cannot be dealt out" in str(refusal)  # noqa: PT017 - most plans are none
        return
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*whole on every rank:RuntimeWarning")
@settings(max_examples=12, phases=[Phase.generate])
@given(
    plans(["encoder.0", "encoder.1", "encoder.1.second", "decoder", "head", "encoder.1.gate"]), st.sampled_from(GRIDS)
)
def test_a_u_net_whose_levels_are_cut_otherwise(layers: dict[str, str], spatial: Any) -> None:
    """Skips are joined in space; its result is this rank's block, whatever the last layer does."""
    try:
        errors = worst_error(FunctionalUNet(1, 4, (8, 16)).double(), _volume(1), spatial, plan=SplitPlan.of(layers))
    except UsageError as refusal:
        assert "cannot be dealt out" in str(refusal)  # noqa: PT017 - as above
        return
    assert max(errors.values()) <= TOLERANCE, errors


def _planned(model: nn.Module, spatial: Any, layers: dict[str, str], shape: tuple[int, ...] = SHAPE) -> ForwardPlan:
    grid = ProcessGrid(spatial, prod(spatial))
    blocks = Blocks.of(grid, shape)
    inputs = Inputs((TensorSpec((2, 2, *blocks.box(grid.coords).shape), torch.float32, torch.device("cpu")),), {})
    return PlanCache(model, SplitOptions(grid, blocks, plan=SplitPlan.of(layers))).of(model, inputs, blocks).plan


def test_filters_before_channels_spare_the_gather_between_them() -> None:
    """The second of the two takes what the first one gave, as it is; both of its neighbours move what they have to."""
    plan = _planned(Deep(), (2, 2, 1), {"second": "filter", "third": "channel"})
    moves = {call.path: step.moves[0] for call, step in plan.sequence if call.path in LAYERS}
    assert moves["second"] is not None
    assert moves["third"] is None
    assert moves["up"] is None


def test_channels_move_between_ranks_without_being_made_whole() -> None:
    """From space to channels each rank receives, of its part, what it has not: an all-to-all, and no gather."""
    plan = _planned(Deep(), (1, 1, 4), {"third": "channel"})
    (move,) = [step.moves[0] for call, step in plan.sequence if call.path == "third"]
    assert move is not None
    voxels = 2 * 24 * 4**3 // 4
    assert [sum(each) for each in zip(*(step.received((0, 0, 1)) for step in move.steps), strict=True)] == [
        3,
        voxels - voxels // 4,
    ]


def test_paths_that_are_none() -> None:
    """A plan that names no layer is refused, and one that says what no use is."""
    with pytest.raises(UsageError, match=r"plan of layer 'thrid'.*'second', 'third'"):
        _planned(Deep(), (2, 1, 1), {"thrid": "filter"})
    with pytest.raises(UsageError, match="space, filter, channel and whole"):
        SplitPlan.of({"third": "filters"})
    with pytest.raises(UsageError, match="space, filter, channel and whole"):
        SplitPlan.of({"third": "filter, space"})


def test_features_that_are_too_few() -> None:
    """A layer that cannot be dealt out is named before anything is sent, never run otherwise."""
    with pytest.raises(UsageError, match=r"'last' \(Linear\).*3 features cannot be dealt out to 2 x 2 ranks"):
        _planned(Deep(), (2, 2, 1), {"last": "filter"})


def test_without_uses_but_space_nothing_changes() -> None:
    """Such a plan is that of the traced network."""
    grid = ProcessGrid((2, 1, 1), 2)
    plan = SplitPlan.of({"0": "space"})
    split = shard(nn.Sequential(nn.Conv3d(2, 4, 3)), grid, shape=SHAPE, plan=plan, exchange=NoExchange(grid))
    assert isinstance(split, Sharded)


class Twins(nn.Module):
    """Two layers of one shape, of which a plan cuts one otherwise, computed again for their gradients."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.one, self.two = (nn.Conv3d(each, 4, 3, padding=1) for each in (2, 4, 4))

    def forward(self, x: Tensor) -> Tensor:
        """Return a volume."""
        x = self.first(x)
        found: Tensor = checkpoint(lambda each: self.two(self.one(each).relu()), x, use_reentrant=False)
        return found


def test_layers_that_look_alike_are_computed_again_each_in_its_own_cut() -> None:
    """Under activation checkpointing, which calls them once more behind the forward pass."""
    errors = worst_error(
        Twins().double(), _volume(), (2, 1, 1), plan=SplitPlan.of({"one": "filter,space,space", "two": "whole"})
    )
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.long
def test_under_autocast() -> None:
    """Partial sums have the type that one process has."""
    world = World(
        Deep(),
        (2, 1, 2),
        shape=SHAPE,
        plan=SplitPlan.of({"": "filter", "third": "channel", "last": "whole"}),
        min_width=0,
    )
    every, wanted = world.autocast(_volume())
    for found in every:
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, rtol=0.1, atol=0.2)


@pytest.mark.long
def test_ranks_with_other_plans_are_told() -> None:
    """Before a voxel is sent, on every rank: blocks would meet what they do not fit."""
    loop = Loopback(ProcessGrid((2, 1, 1), 2))
    nets = [
        shard(Deep(), loop.grid.at(rank), shape=SHAPE, plan=SplitPlan.of({layer: "filter"}), exchange=loop.rank(rank))
        for rank, layer in enumerate(("second", "third"))
    ]
    with pytest.raises(InternalError, match="another network"):
        loop.run(lambda rank: nets[rank](torch.zeros(2, 2, 4, 8, 8)))


def test_it_is_explained() -> None:
    """The table has what is fetched, and what partial sums bring: half of the result, from the other rank."""
    grid = ProcessGrid((2, 1, 1), 2)
    table = explain(Deep(), SHAPE, grid, plan=SplitPlan.of({"second": "filter", "third": "channel"}))
    (row,) = [line for line in table.splitlines() if "'third'" in line]
    assert row.split()[-4:-2] == ["1", f"{12 * 4**3 // 2 * 4 / 1024:.1f}"]
