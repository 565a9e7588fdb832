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

from tests.engine.forward.onblocks_world import SHAPE, TOLERANCE, Net, World, evaluated, volume
from tests.engine.forward.split_plan_nets import Deep
from tests.support.splitting.functional import FunctionalUNet
from voxload.engine import NoExchange, SplitPlan, shard
from voxload.engine.comparison import differences
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.forward.rules.randomness import normal, uniform
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

HALVES = (2, 1, 1)
"""Every rank of a world compiles in this process, one after the other."""
Operation = Callable[[Any, Tensor], Any]


@pytest.fixture(autouse=True)
def _forgets() -> Iterator[None]:
    """No test gets the graphs of another one."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled(world: World, backend: str = "aot_eager") -> list[Any]:
    """Let every rank compile its network as a whole, without kernels of its own; return the networks."""
    for net in world.nets:
        net.compile(fullgraph=True, backend=backend)
    return world.nets


def alone(model: nn.Module, **options: Any) -> Any:
    """Return a network that runs on the only block, compiled."""
    grid = ProcessGrid((1, 1, 1), 1, 0)
    split = shard(model, grid, exchange=NoExchange(grid), **options)
    split.compile(fullgraph=True, backend="aot_eager")
    return split


def error(model: nn.Module, x: Tensor, **options: Any) -> float:
    """Return the worst difference of results, gradients and buffers of compiled ranks from those of one process."""

    def split(twin: nn.Module, grid: ProcessGrid, exchange: Exchange) -> nn.Module:
        net = shard(twin, grid, shape=tuple(x.shape[2:]), exchange=exchange, **options)
        net.compile(fullgraph=True, backend="aot_eager")
        return net

    found = differences(model.double(), x, HALVES, split)
    assert found is not None
    return max(found.all.values())


@pytest.mark.long
def test_it_is_what_one_process_gives() -> None:
    """Computed weights, replicated borders, resizing, gates by means of the whole, and skips that are concatenated."""
    assert error(FunctionalUNet(1, 2, (2, 4)), volume(shape=(8, 6, 10))) < TOLERANCE


@pytest.mark.long
def test_filters_and_channels_are_cut_in_graphs() -> None:
    """What moves between cuts of volumes and of weights is a part of the graph."""
    plan = SplitPlan.of({"second": "filter", "third": "channel", "up": "channel", "wide": "filter"})
    assert error(Deep(), volume(2, (8, 8, 8)), plan=plan, min_width=0) < TOLERANCE


@pytest.mark.long
def test_copies_are_kept_apart() -> None:
    """What writes into a copy of a volume does not write into the volume."""

    def operation(net: Any, x: Tensor) -> Tensor:
        y = functional.dropout(x, 0.5, training=False)  # gives back what it got, or a copy
        found: Tensor = (
            x + (y.to(x.dtype, copy=True).relu_() * net.gain) + functional.interpolate(x, x.shape[2:]).mul_(2)
        )
        return found

    assert error(evaluated(operation), volume()) < TOLERANCE


class Normed(nn.Module):
    """Asks for extents; its statistics are of the whole volume, and are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv3d(1, 2, 3), nn.BatchNorm3d(2), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return three numbers a sample."""
        y: Tensor = self.last(self.norm(self.first(x)).relu().mean((2, 3, 4)) * x.shape[2])
        return y


@pytest.mark.long
def test_statistics_are_kept() -> None:
    """Buffers that forward writes into are those that a graph writes into."""
    assert error(Normed(), volume()) < TOLERANCE


class Checkpointed(Net):
    """Computes itself again in the backward pass."""

    def forward(self, x: Tensor, **others: Any) -> Any:
        """Do what a Net does."""
        found: Any = checkpoint(super().forward, x, use_reentrant=False, **others)
        return found


@pytest.mark.long
def test_parts_that_are_checkpointed() -> None:
    """What is computed again in the backward pass is a part of the graph."""
    assert error(Checkpointed().eval(), volume()) < TOLERANCE


@pytest.mark.long
def test_casts() -> None:
    """Under autocast convolutions compute in bfloat16, alike on blocks and in one process."""
    world, x = World(evaluated(), HALVES, shape=SHAPE), volume().float()
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


@pytest.mark.long
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


@pytest.mark.long
def test_inputs_and_results_in_trees() -> None:
    """Volumes, vectors and numbers go in, by name and by place; dictionaries, lists and data classes come out."""

    class Conditioned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv3d(1, 2, 3, padding=1)

        def forward(self, x: Tensor, scale: float, *, shift: Tensor) -> Any:
            y = self.conv(x) * scale * x.shape[2] + shift[:, :, None, None, None]
            return {"pair": Pair(y, y.mean((2, 3, 4))), "all": [y.relu(), shift]}

    world, x, shift = World(Conditioned(), HALVES, shape=SHAPE), volume(), torch.randn(2, 2, dtype=torch.float64)
    compiled(world)
    blocks = [world.block(rank, x) for rank in world.ranks]
    found = world.loop.run(lambda rank: world.nets[rank](blocks[rank], 0.5, shift=shift))
    wanted = world.whole(x, 0.5, shift=shift)
    assert world.equals([each["pair"].volume for each in found], wanted["pair"].volume)
    assert world.equals([each["pair"].mean for each in found], wanted["pair"].mean)
    assert world.equals([each["all"][0] for each in found], wanted["all"][0])
    assert all(torch.equal(each["all"][1], shift) for each in found)


class Drawing(Net):
    """Drops voxels, and numbers of the whole, and adds noise."""

    def forward(self, x: Tensor, **others: Any) -> Any:
        """Scale what a Net gives."""
        y = super().forward(x, **others)
        share = torch.bernoulli(torch.full((2, 1, 1, 1, 1), 0.5, dtype=y.dtype)) + torch.rand(2, 1, 1, 1, 1)
        y = y * functional.dropout(y.mean((2, 3, 4), keepdim=True), 0.3, self.training) * share
        return y + torch.randn_like(y) + torch.randn(y.shape, dtype=y.dtype) * torch.empty_like(y).bernoulli_(0.2)


@pytest.mark.filterwarnings("ignore:.*whole on every rank:RuntimeWarning")
@pytest.mark.parametrize("other", ["eager", pytest.param("aot_eager", marks=pytest.mark.long)])
def test_random_numbers_are_the_same_however_a_volume_is_cut(other: str) -> None:
    """Their seed is one that the ranks agree on in the graph, whoever runs that, with gradients or without."""
    results = []
    for spatial, backend in ((HALVES, "eager"), ((1, 1, 2), other)):
        world, x = World(Drawing().train(), spatial, shape=SHAPE), volume()
        compiled(world, backend)

        def work(rank: int, world: World = world, x: Tensor = x, *, learns: bool = spatial == HALVES) -> list[Tensor]:
            torch.manual_seed(5)
            with torch.set_grad_enabled(learns):
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


@pytest.mark.long
def test_a_copy_is_a_network_of_its_own() -> None:
    """Its graphs have its weights."""
    world, x = World(evaluated(), HALVES, shape=SHAPE), volume()
    compiled(world)
    wanted = world.whole(x)
    assert world.equals(world.run(x), wanted)
    originals, world.nets[:] = list(world.nets), [copy.deepcopy(net) for net in world.nets]
    for net in (world.whole, *compiled(world)):
        torch.nn.init.ones_(net.last.weight)
    assert world.equals(world.run(x), world.whole(x))
    world.nets[:] = originals
    assert world.equals(world.run(x), wanted)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("rank", [0, 1])
def test_attributes_that_change_are_told_on_all_ranks(rank: int) -> None:
    """A graph has the value that an attribute had; whoever has another one now is not alone with its error."""
    world, x, told = World(evaluated(), HALVES, shape=SHAPE), volume(), []
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
        (lambda _, x: x + torch.randperm(x.shape[2])[0], False, "draws random numbers that all ranks must have alike"),
        (lambda net, x: checkpoint(net.drop, x, use_reentrant=False), True, "a part of forward that is checkpointed"),
    ],
)
def test_random_numbers_that_graphs_cannot_have_alike(operation: Operation, training: bool, message: str) -> None:
    """They are refused while the graph is made, before any message."""
    split = alone(Net(operation).train(training), shape=SHAPE)
    with pytest.raises(Exception, match=message):
        split(volume().float()).sum().backward()


@pytest.mark.long
def test_one_rank_alone_with_a_graph_is_told_of() -> None:
    """Its dropout would fall on other voxels than that of its neighbours."""
    world, x = World(evaluated(), HALVES, shape=SHAPE), volume()
    world.nets[1].compile(fullgraph=True, backend="aot_eager")
    with pytest.raises(UsageError, match=r"rank 1: found .*torch\.compile on one of them alone"):
        world.run(x)


@pytest.mark.long
def test_no_gradients() -> None:
    """A graph for each of no_grad, inference_mode and training."""
    model, x = Normed().double().eval(), volume()
    split = alone(copy.deepcopy(model), shape=SHAPE)
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            wanted, found = model(x), split(x)
        torch.testing.assert_close(found, wanted, rtol=0, atol=TOLERANCE)
        assert found.requires_grad is wanted.requires_grad


def test_without_a_shape_there_is_no_graph() -> None:
    """The ranks' blocks would say what is sent, which a graph must know."""
    with pytest.raises(Exception, match="give shape= to"):
        alone(evaluated())(volume().float())


def test_a_layer_is_not_compiled_by_itself() -> None:
    """It gets blocks, of which the compiler knows nothing."""
    world, x = World(evaluated(), HALVES, shape=SHAPE), volume()
    for net in world.nets:
        net.first.compile(fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="compile the whole network"):
        world.run(x)


def test_it_is_not_exported() -> None:
    """Its messages are those of a rank that runs."""
    with pytest.raises(UsageError, match="export the model before"):
        torch.export.export(alone(evaluated(), shape=SHAPE), (volume().float(),), strict=False)


def test_numbers_are_distributed_as_they_should_be() -> None:
    """From 0 to below 1 alike, and normally; 2^18 of each, of one seed."""
    places, seed = [torch.arange(64)] * 3, torch.tensor(11)
    for each in (uniform, normal):
        with pytest.raises(UsageError, match=r"found torch\.complex64, expected a floating-point type"):
            each(places, seed, torch.complex64, torch.device("cpu"))
    for dtype in (torch.float32, torch.float64):
        even, bell = (each(places, seed, dtype, torch.device("cpu")) for each in (uniform, normal))
        assert even.dtype == bell.dtype == dtype
        assert 0 <= even.min() < 1e-4
        assert 1 - 1e-4 < even.max() < 1
        assert abs(even.mean() - 0.5) < 0.003
        assert abs(even.var() - 1 / 12) < 0.001
        assert bell.isfinite().all()
        assert abs(bell.mean()) < 0.01
        assert abs(bell.var() - 1) < 0.02
        assert abs(bell.pow(4).mean() - 3) < 0.1
        assert abs((bell[1:] * bell[:-1]).mean()) < 0.01


@pytest.mark.long
def test_layers_with_two_names() -> None:
    """And weights that two layers have: all get their gradients, and the network has its own tensors afterwards."""

    class Twice(Net):
        def __init__(self) -> None:
            super().__init__()
            self.again = nn.ModuleList([self.first, nn.Conv3d(1, 2, 3, padding=1)])
            self.again[1].weight = self.first.weight

        def forward(self, x: Tensor, **others: Any) -> Any:
            return super().forward(x, **others) + self.last(self.again[0](x) * self.again[1](x))

    assert error(Twice().eval(), volume()) < TOLERANCE
    split = alone(Twice().eval(), shape=SHAPE)
    before = [*split.parameters()]
    split(volume().float()).sum().backward()
    assert all(one is other for one, other in zip(before, split.parameters(), strict=True))
    assert type(split.again[0].weight) is nn.Parameter


def test_buffers_that_are_replaced_are_refused() -> None:
    """A graph writes into the tensors that it knows."""

    def operation(net: Any, x: Tensor) -> Tensor:
        net.drop.count = net.drop.count + 1
        return x

    model: Any = evaluated(operation)
    model.drop.register_buffer("count", torch.zeros(()))
    with pytest.raises(Exception, match="another tensor in the place of 'count'"):
        alone(model, shape=SHAPE)(volume().float())
