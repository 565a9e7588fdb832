"""Networks whose own forward runs on blocks, as one graph of torch's compiler on each rank."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from bench.splitting.functional import FunctionalUNet
from tests.engine.forward.onblocks_world import SHAPE, SPATIAL, TOLERANCE, Net, World, evaluated, volume
from voxload.engine import NoExchange, shard
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.virtual import differences
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

Operation = Callable[[Any, Tensor], Any]


@pytest.fixture(autouse=True)
def _forgets() -> Iterator[None]:
    """No test gets the graphs of another one."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled(world: World) -> list[Any]:
    """Let every rank compile its network as a whole, without kernels of its own; return the networks."""
    for net in world.nets:
        net.compile(fullgraph=True, backend="aot_eager")
    return world.nets


def alone(model: nn.Module, **options: Any) -> Any:
    """Return a network that runs on the only block, compiled."""
    grid = ProcessGrid((1, 1, 1), 1, 0)
    split = shard(model, grid, exchange=NoExchange(grid), **options)
    split.compile(fullgraph=True, backend="aot_eager")
    return split


def error(model: nn.Module, x: Tensor) -> float:
    """Return the worst difference of results, gradients and buffers of compiled ranks from those of one process."""

    def split(twin: nn.Module, grid: ProcessGrid, exchange: Exchange) -> nn.Module:
        net = shard(twin, grid, shape=tuple(x.shape[2:]), exchange=exchange)
        net.compile(fullgraph=True, backend="aot_eager")
        return net

    found = differences(model.double(), x, SPATIAL, split)
    assert found is not None
    return max(found.all.values())


def test_it_is_what_one_process_gives() -> None:
    """Computed weights, replicated borders, resizing, gates by means of the whole, and skips that are concatenated."""
    assert error(FunctionalUNet(1, 2, (2, 4)), volume(shape=(8, 6, 10))) < TOLERANCE


class Normed(nn.Module):
    """Asks for extents; its statistics are of the whole volume, and are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv3d(1, 2, 3), nn.BatchNorm3d(2), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return three numbers a sample."""
        y: Tensor = self.last(self.norm(self.first(x)).relu().mean((2, 3, 4)) * x.shape[2])
        return y


def test_statistics_are_kept() -> None:
    """Buffers that forward writes into are those that a graph writes into."""
    assert error(Normed(), volume()) < TOLERANCE


class Checkpointed(Net):
    """Computes itself again in the backward pass."""

    def forward(self, x: Tensor, **others: Any) -> Any:
        """Do what a Net does."""
        return checkpoint(super().forward, x, use_reentrant=False, **others)


def test_parts_that_are_checkpointed() -> None:
    """What is computed again in the backward pass is a part of the graph."""
    assert error(Checkpointed().eval(), volume()) < TOLERANCE


def test_casts() -> None:
    """Under autocast convolutions compute in bfloat16, alike on blocks and in one process."""
    world, x = World(evaluated(), shape=SHAPE), volume().float()
    world.whole.float()
    for net in compiled(world):
        net.float()
    with torch.autocast("cpu", torch.bfloat16):
        wanted = world.whole(x)
    blocks = [world.block(rank, x) for rank in world.ranks]

    def work(rank: int) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return world.nets[rank](blocks[rank])

    for rank, found in enumerate(world.loop.run(work)):
        assert found.dtype == wanted.dtype == torch.bfloat16
        torch.testing.assert_close(found, world.block(rank, wanted), rtol=0.05, atol=0.05)


def test_each_mode_and_batch_has_its_graph() -> None:
    """A network may go from training to evaluation and back, and take more samples."""
    model, x = Normed().double(), volume()
    split = alone(copy.deepcopy(model), shape=SHAPE)
    for is_training, batch in ((True, x), (False, x), (True, torch.cat([x, x + 1])), (False, x[:1]), (True, x)):
        wanted, found = (net.train(is_training)(batch) for net in (model, split))
        torch.testing.assert_close(found, wanted, rtol=0, atol=TOLERANCE)


@dataclass
class Pair:
    """A result that torch is told of."""

    volume: Tensor
    mean: Tensor


torch.utils._pytree.register_dataclass(Pair)


def test_inputs_and_results_in_trees() -> None:
    """Volumes, vectors and numbers go in, by name and by place; dictionaries, lists and data classes come out."""

    class Conditioned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv3d(1, 2, 3, padding=1)

        def forward(self, x: Tensor, scale: float, *, shift: Tensor) -> Any:
            y = self.conv(x) * scale * x.shape[2] + shift[:, :, None, None, None]
            return {"pair": Pair(y, y.mean((2, 3, 4))), "all": [y.relu(), shift]}

    world, x, shift = World(Conditioned(), shape=SHAPE), volume(), torch.randn(2, 2, dtype=torch.float64)
    compiled(world)
    blocks = [world.block(rank, x) for rank in world.ranks]
    found = world.loop.run(lambda rank: world.nets[rank](blocks[rank], 0.5, shift=shift))
    wanted = world.whole(x, 0.5, shift=shift)
    assert world.equals([each["pair"].volume for each in found], wanted["pair"].volume)
    assert world.equals([each["pair"].mean for each in found], wanted["pair"].mean)
    assert world.equals([each["all"][0] for each in found], wanted["all"][0])
    assert all(torch.equal(each["all"][1], shift) for each in found)


class Dropping(Net):
    """Drops voxels, and numbers of the whole."""

    def forward(self, x: Tensor, **others: Any) -> Any:
        """Scale what a Net gives."""
        y = super().forward(x, **others)
        return y * functional.dropout(y.mean((2, 3, 4), keepdim=True), 0.3, self.training)


def test_dropout_is_the_same_however_a_volume_is_cut() -> None:
    """Its seed is one that the ranks agree on in the graph."""
    results = []
    for spatial in (SPATIAL, (1, 4, 1)):
        world, x = World(Dropping().train(), spatial, shape=SHAPE), volume()
        compiled(world)

        def work(rank: int, world: World = world, x: Tensor = x) -> list[Tensor]:
            torch.manual_seed(5)
            return [world.nets[rank](world.block(rank, x)).detach() for _ in range(2)]

        rows = world.loop.run(work)
        whole = torch.full((2, *x.shape), torch.nan, dtype=torch.float64)
        for rank, found in enumerate(rows):
            for number, one in enumerate(found):
                world.block(rank, whole[number]).copy_(one)
        results.append(whole)
        assert not torch.equal(whole[0], whole[1])  # every pass drops others
        assert not torch.equal(whole[0], world.whole.eval()(x))
    torch.testing.assert_close(*results, rtol=0, atol=TOLERANCE)


def test_a_copy_is_a_network_of_its_own() -> None:
    """Its graphs have its weights."""
    world, x = World(evaluated(), shape=SHAPE), volume()
    world.nets[:] = [copy.deepcopy(net) for net in world.nets]
    for net in (world.whole, *compiled(world)):
        torch.nn.init.ones_(net.last.weight)
    assert world.equals(world.run(x), world.whole(x))


@pytest.mark.parametrize("rank", [0, 3])
def test_attributes_that_change_are_told_on_all_ranks(rank: int) -> None:
    """A graph has the value that an attribute had; whoever has another one now is not alone with its error."""
    world, x, told = World(evaluated(), shape=SHAPE), volume(), []
    networks = compiled(world)
    assert world.equals(world.run(x), world.whole(x))
    networks[rank].gain = 2.0

    def work(each: int) -> None:
        with pytest.raises(UsageError) as error:
            networks[each](world.block(each, x))
        told.append(str(error.value))

    world.loop.run(work)
    assert len(told) == len(networks)
    assert any("another value of 'gain' than in its graph" in each for each in told)
    networks[rank].gain = 1.0
    assert world.equals(world.run(x), world.whole(x))


@pytest.mark.parametrize(
    ("operation", "training", "message"),
    [
        (lambda _, x: x + torch.randn(x.shape[2:]), False, "draws random numbers that all ranks must have alike"),
        (lambda _, x: x + torch.randn_like(x), False, "draws random numbers that all ranks must have alike"),
        (lambda net, x: checkpoint(net.drop, x, use_reentrant=False), True, "dropout in a part of forward"),
    ],
)
def test_random_numbers_that_graphs_cannot_have_alike(operation: Operation, training: bool, message: str) -> None:
    """They are refused while the graph is made, before any message."""
    split = alone(Net(operation).train(training), shape=SHAPE)
    with pytest.raises(Exception, match=message):
        split(volume().float()).sum().backward()


def test_without_a_shape_there_is_no_graph() -> None:
    """The ranks' blocks would say what is sent, which a graph must know."""
    with pytest.raises(Exception, match="give shape= to"):
        alone(evaluated())(volume().float())


def test_a_layer_is_not_compiled_by_itself() -> None:
    """It gets blocks, of which the compiler knows nothing."""
    world, x = World(evaluated(), shape=SHAPE), volume()
    for net in world.nets:
        net.first.compile(fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="compile the whole network"):
        world.run(x)


def test_it_is_not_exported() -> None:
    """Its messages are those of a rank that runs."""
    with pytest.raises(UsageError, match="export the model before"):
        torch.export.export(alone(evaluated(), shape=SHAPE), (volume().float(),), strict=False)
