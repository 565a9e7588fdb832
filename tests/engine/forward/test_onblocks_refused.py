"""What a network whose own forward runs on blocks refuses: on all ranks, by name, and before anything is sent."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from tests.engine.forward.onblocks_world import GRID, SHAPE, Net, World, evaluated, volume
from tests.support.splitting.functional import FunctionalUNet
from voxload.engine import Loopback, shard
from voxload.errors import InternalError, UsageError


def test_volumes_that_do_not_fit_are_refused_on_all_ranks() -> None:
    """A second volume of other extents, on one rank alone, and the whole in place of a block."""
    world, x = World(evaluated(lambda _, x, other: x + other), shape=SHAPE), volume()

    def run(rank: int) -> str:
        other = world.block(rank, x)[..., :-1] if rank == 1 else world.block(rank, x)
        with pytest.raises(UsageError) as caught:
            world.nets[rank](world.block(rank, x), other=other)
        return str(caught.value)

    for rank, told in enumerate(world.loop.run(run)):
        assert "beside the first one" in told if rank == 1 else told.startswith("rank 1: found that it refuses")
    again = World(evaluated(), shape=SHAPE)
    with pytest.raises(UsageError, match="block of rank 0"):
        again.loop.run(lambda rank: again.nets[rank](x))


def test_a_setting_on_one_rank_is_an_error_on_all() -> None:
    """The others would wait for messages that do not come."""
    for shape in (SHAPE, None):
        world = World(evaluated(), shape=shape)
        world.nets[1].gain = 3.0
        with pytest.raises(InternalError, match=r"rank [01]"):
            world.run(volume())


def test_another_function_on_one_rank_is_an_error_on_all() -> None:
    """No text tells functions apart; what they ask of torch does, before anything is sent."""
    for shape in (SHAPE, None):
        world = World(evaluated(lambda _, x: x.relu()), shape=shape)
        world.nets[1].operation = lambda _, x: x.sigmoid()
        with pytest.raises(InternalError, match=r"rank [01]"):
            world.run(volume())


def test_a_weight_that_is_frozen_on_one_rank_is_an_error_on_all() -> None:
    """Backward passes would wait for each other."""
    world = World(evaluated(), shape=SHAPE)
    world.nets[1].last.weight.requires_grad_(requires_grad=False)
    with pytest.raises(UsageError, match="rank 1: found other settings of train, no_grad or requires_grad"):
        world.run(volume())


SCALES = {"now": 2.0}


def test_another_way_than_the_recorded_one_is_refused() -> None:
    """Hooks that come later, and what lies outside of the network."""
    world, x = World(evaluated(lambda _, x: x * SCALES["now"]), shape=SHAPE), volume()
    assert world.equals(world.run(x), world.whole(x))
    SCALES["now"] = 3.0
    with pytest.raises(UsageError, match=r"mul.*another way through forward than the one that was recorded"):
        world.run(x)
    SCALES["now"] = 2.0
    late = World(evaluated(), shape=SHAPE)
    for net in late.nets:
        net.first.register_forward_hook(lambda _module, _args, y: y - y.mean())
    with pytest.raises(UsageError, match=r"register hooks before voxload\.engine\.shard"):
        late.run(x)


def test_less_than_what_was_recorded_is_refused() -> None:
    """A call that is left out would leave other ranks waiting, or give other voxels."""
    world, x = World(evaluated(lambda _, x: x.relu() if SCALES["now"] == 2.0 else x), shape=SHAPE), volume()
    SCALES["now"] = 3.0
    try:
        with pytest.raises(UsageError, match="another way through forward"):
            world.run(x)
    finally:
        SCALES["now"] = 2.0


def test_numbers_of_numpy_are_refused_and_put_back() -> None:
    """They would differ from rank to rank."""
    before = np.random.get_state()[2]  # type: ignore[index] # noqa: NPY002 - that of networks that use it
    with pytest.raises(UsageError, match="random numbers of Python or numpy"):
        shard(
            evaluated(lambda _, x: x * np.random.rand()),  # noqa: NPY002 - as above
            GRID.at(0),
            shape=SHAPE,
            exchange=Loopback(GRID).rank(0),
        )
    assert np.random.get_state()[2] == before  # type: ignore[index] # noqa: NPY002 - as above


def test_statistics_over_some_processes_are_refused() -> None:
    """The engine's own are those of the whole world."""
    model = nn.Sequential(Net(), nn.SyncBatchNorm(1, process_group="some ranks"))
    with pytest.raises(UsageError, match=r"layer '1' \(SyncBatchNorm\).*convert without process_group"):
        shard(model, GRID.at(0), exchange=Loopback(GRID).rank(0))


def test_statistics_of_the_world_of_what_is_whole_are_refused() -> None:
    """Every rank of a group has them: before any message, and not taken of one group instead."""
    model = evaluated(lambda net, x: x * net.norm(x.mean((2, 3, 4), keepdim=True)))
    model.norm = nn.SyncBatchNorm(2)
    with pytest.raises(UsageError, match=r"nn\.SyncBatchNorm: found a tensor that every rank of a group has whole"):
        World(model.train(), shape=SHAPE).run(volume())


def test_a_volume_that_forward_does_not_take_is_told() -> None:
    """Its own failure, and not only why no trace keeps it."""
    model = FunctionalUNet(1, 2, (2, 4, 6))
    with pytest.raises(UsageError, match=r"no volume of shape \(2, 2, 2\).*try the model itself.*no trace keeps it"):
        shard(model, GRID.at(0), shape=(2, 2, 2), exchange=Loopback(GRID).rank(0))
