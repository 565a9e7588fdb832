"""Settings of torch's around a network whose own forward runs on blocks, and statistics of several sample groups."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.engine.forward.onblocks_world import SHAPE, TOLERANCE, Net, World, evaluated, volume
from voxload.engine import Loopback, shard
from voxload.grid import ProcessGrid


def test_statistics_of_all_groups() -> None:
    """SyncBatchNorm over two groups of two blocks is what BatchNorm3d is in one process that has all samples."""

    class Normed(Net):
        def __init__(self, kind: type[nn.Module]) -> None:
            super().__init__()
            self.norm: Any = kind(2)
            self.drop = nn.Dropout(0.0)
            self.operation = lambda net, x: net.norm(x * x)

    whole, x = Normed(nn.BatchNorm3d).double(), torch.cat([volume(), volume() * 3 + 1])
    world = Loopback(ProcessGrid((2, 1, 1), 4))
    nets: list[Any] = []
    for rank in range(4):
        model = Normed(nn.SyncBatchNorm).double()
        nets.append(shard(model, world.grid.at(rank), shape=SHAPE, exchange=world.rank(rank)))
    wanted = whole(x)
    wanted.square().sum().backward()
    own = [world.grid.at(rank).block(SHAPE).slices for rank in range(4)]
    block: Any = [(slice(rank // 2 * 2, rank // 2 * 2 + 2), slice(None), *own[rank]) for rank in range(4)]

    def work(rank: int) -> Tensor:
        found: Tensor = nets[rank](x[block[rank]])
        found.square().sum().backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
        return found.detach()

    for rank, found in enumerate(world.run(work)):
        torch.testing.assert_close(found, wanted[block[rank]].detach(), rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(
            dict(nets[rank].named_buffers()), dict(whole.named_buffers()), rtol=0, atol=TOLERANCE
        )
    for name, weight in whole.named_parameters():
        total = sum(net.get_parameter(name).grad for net in nets)
        torch.testing.assert_close(total, weight.grad, rtol=0, atol=1e-10)
    for net in (whole, *nets):
        net.eval()
    wanted = whole(x).detach()
    for rank, found in enumerate(world.run(lambda rank: nets[rank](x[block[rank]]).detach())):
        torch.testing.assert_close(found, wanted[block[rank]], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    "model", [evaluated(lambda _, x: x.relu_()), nn.Conv3d(1, 2, 3, padding=1)], ids=["own", "traced"]
)
def test_inference_mode(model: nn.Module) -> None:
    """The usual way to evaluate, first and after passes with gradients."""
    for shape in (SHAPE, None):
        world, x = World(copy.deepcopy(model), shape=shape), volume()
        wanted = world.whole(x)

        def work(rank: int, world: World = world, x: Tensor = x) -> Any:
            with torch.inference_mode():
                return world.nets[rank](world.block(rank, x))

        found = world.loop.run(work)
        assert all(each.is_inference() for each in found)
        assert world.equals([each.clone() for each in found], wanted)
        assert world.equals(world.run(x), wanted)
        assert world.equals([each.clone() for each in world.loop.run(work)], wanted)


def test_a_type_of_autocast_that_is_off_means_nothing() -> None:
    """Neither is a plan made anew for it, nor is it a difference between ranks; threads have types of their own."""
    world, x = World(evaluated(), shape=SHAPE), volume()
    known = [len(net._voxload_passes.plans._plans) for net in world.nets]

    def run(rank: int) -> Any:
        before = torch.get_autocast_dtype("cpu")
        torch.set_autocast_dtype("cpu", torch.float16 if rank else torch.float32)
        try:
            return world.nets[rank](world.block(rank, x))
        finally:
            torch.set_autocast_dtype("cpu", before)

    assert world.equals(world.loop.run(run), world.whole(x))
    assert [len(net._voxload_passes.plans._plans) for net in world.nets] == known


def test_autocast() -> None:
    """Convolutions in bfloat16 of the values that one process gives them."""
    world, x = World(evaluated(), shape=SHAPE), volume().float()
    for net in (world.whole, *world.nets):
        net.float()

    def run(rank: int) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return world.nets[rank](world.block(rank, x))

    with torch.autocast("cpu", torch.bfloat16):
        wanted = world.whole(x)
    for rank, found in enumerate(world.loop.run(run)):
        assert found.dtype == wanted.dtype == torch.bfloat16
        torch.testing.assert_close(found, world.block(rank, wanted), rtol=2e-2, atol=2e-1)
