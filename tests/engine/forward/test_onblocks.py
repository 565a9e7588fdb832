"""A network whose own forward runs on blocks: what users do with it, beside the same in one process."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.engine.forward.onblocks_world import GRID, SHAPE, SPATIAL, TOLERANCE, Net, World, evaluated, volume
from tests.support.splitting.functional import FunctionalUNet
from voxload.engine import Loopback, NoExchange, check, explain, shard
from voxload.engine.forward.block import Block
from voxload.engine.forward.onblocks import OnBlocks
from voxload.engine.forward.passes import pass_seed
from voxload.errors import UsageError
from voxload.grid import ProcessGrid


class Named(NamedTuple):
    """A result with names."""

    volume: Tensor
    mean: Tensor


@dataclass
class Output:
    """A result as libraries define it."""

    sample: Tensor
    parts: list[Tensor]


def test_it_is_the_model_but_for_its_forward() -> None:
    """Class, names, parameters, state and methods are the model's own."""
    model: Any = evaluated().double()
    world = Loopback(GRID)
    split: Any = shard(model, GRID.at(0), shape=SHAPE, exchange=world.rank(0))
    assert isinstance(split, Net)
    assert isinstance(split, OnBlocks)
    assert type(split).__name__ == "Net"
    assert split.receptive_field() == 5
    assert list(split.state_dict()) == list(model.state_dict())
    assert all(one is other for one, other in zip(split.parameters(), model.parameters(), strict=True))
    assert split.first is model.first
    assert "spatial=(2, 1, 2)" in repr(split)
    split.load_state_dict(evaluated().double().state_dict())


def test_results_keep_their_form() -> None:
    """Named tuples, data classes, dictionaries and lists; volumes are blocks, what has no extents is whole."""

    class Forms(nn.Module):
        def forward(self, x: Tensor) -> Any:
            y = x * x.shape[2]
            mean = y.mean((2, 3, 4))
            return {"named": Named(y, mean), "data": Output(y, [functional.max_pool3d(y, 2)]), "number": 3}

    world, x = World(Forms(), shape=SHAPE), volume()
    found, wanted = world.run(x), world.whole(x)
    assert all(type(one["named"]) is Named and type(one["data"]) is Output and one["number"] == 3 for one in found)
    assert world.equals([one["named"].volume for one in found], wanted["named"].volume)
    assert world.equals([one["named"].mean for one in found], wanted["named"].mean)
    assert world.equals([one["data"].parts[0] for one in found], wanted["data"].parts[0])
    assert found[0]["named"].volume.shape == (2, 1, 3, 8, 5)
    assert found[0]["named"].mean.shape == (2, 1)


def test_several_inputs() -> None:
    """A second volume, a mask without channels, and numbers for each sample that every rank has alike."""

    def operation(_: Net, x: Tensor, mask: Tensor, step: Tensor, scale: float) -> Tensor:
        return (x * scale + step[:, None, None, None, None]) * mask[:, None]

    world, x = World(evaluated(operation)), volume()
    mask, step = volume()[:, 0] > 0, torch.tensor([0.5, 2.0], dtype=torch.float64)
    wanted = world.whole(x, mask=mask, step=step, scale=1.5)
    blocks = [(world.block(rank, x), mask[:, None]) for rank in world.ranks]
    found = world.loop.run(
        lambda rank: world.nets[rank](
            blocks[rank][0], mask=world.block(rank, blocks[rank][1])[:, 0], step=step, scale=1.5
        )
    )
    assert world.equals(found, wanted)


@pytest.mark.long
def test_images() -> None:
    """A volume of one plane: (B, C, H, W) over a grid of one block along d."""

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 3, 3, padding=1)

        def forward(self, x: Tensor) -> Any:
            return functional.interpolate(self.conv(x), size=x.shape[2:], mode="bilinear")

    for shape in ((8, 10), None):
        world, x = World(Flat(), (1, 2, 2), shape=shape), volume(1, (8, 10))
        assert world.equals(world.run(x), world.whole(x))
    grid = ProcessGrid((1, 2, 2), 4)
    assert check(Flat(), (9, 7), grid).is_equal
    shard(Flat(), grid.at(0), shape=(64, 64), verify=True, exchange=Loopback(grid).rank(0))
    with pytest.raises(UsageError, match="two extents for a grid with several blocks along d"):
        shard(Flat(), GRID.at(0), shape=(8, 8), exchange=Loopback(GRID).rank(0))


def test_extents_follow_from_the_blocks() -> None:
    """Without a shape every volume has its own plan."""
    world = World(evaluated())
    for shape in (SHAPE, (9, 5, 7), SHAPE):
        x = volume(1, shape)
        assert world.equals(world.run(x), world.whole(x))


def test_modes_and_settings_are_followed() -> None:
    """Training modes, numbers and flags that are changed after the network was split."""
    world, x = World(evaluated(lambda net, x: x * 2 if net.training else x), shape=SHAPE), volume()
    for net in (world.whole, *world.nets):
        net.drop.p = 0.0
    for change in (lambda net: net.train(), lambda net: setattr(net, "gain", 3.0), lambda net: net.eval()):
        for net in (world.whole, *world.nets):
            change(net)
        assert world.equals(world.run(x), world.whole(x))


class Wrapper(nn.Module):
    """As activation checkpointing wraps a layer."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        """Call it."""
        return checkpoint(self.inner, x, use_reentrant=False)


def test_layers_may_be_wrapped_and_not_replaced() -> None:
    """The layer itself is still there."""
    world, x = World(evaluated(), shape=SHAPE), volume()
    for net in world.nets:
        net.last = Wrapper(net.last)
    assert world.equals(world.run(x), world.whole(x))
    for net in world.nets:
        net.last = nn.Conv3d(2, 1, 3, padding=1).double()
    with pytest.raises(UsageError, match="layer 'last' changed"):
        world.run(x)


def test_hooks_of_the_result_see_what_this_rank_has() -> None:
    """Those of the model itself see the whole, as in one process."""
    model = evaluated()
    model.register_forward_pre_hook(lambda _module, args: (args[0] - args[0].mean(),))
    world, x, seen = World(model, shape=SHAPE), volume(), []
    world.nets[0].register_forward_hook(lambda _module, args, y: seen.append((args[0].shape, y.shape)))
    assert world.equals(world.run(x), world.whole(x))
    assert seen == [((2, 1, 3, 8, 5), (2, 1, 3, 8, 5))]


@pytest.mark.long
def test_dropout_is_the_same_however_a_volume_is_cut() -> None:
    """And in a checkpointed part, whose numbers are drawn twice; the process's own numbers go on behind one draw."""
    results = []
    for spatial, wraps in ((SPATIAL, False), ((1, 4, 1), False), ((2, 2, 1), True)):
        world, x = World(Net().train(), spatial, shape=SHAPE), volume()
        for net in world.nets:
            net.drop = Wrapper(net.drop) if wraps else net.drop
        torch.manual_seed(5)
        blocks = [world.block(rank, x).requires_grad_() for rank in world.ranks]

        def work(rank: int, world: World = world, blocks: list[Tensor] = blocks) -> tuple[Tensor, int]:
            torch.manual_seed(5)
            found = world.nets[rank](blocks[rank])
            (found * blocks[rank].detach()).sum().backward()
            torch.randint(2**62, ())
            return found.detach(), int(torch.randint(2**62, ()))

        rows = world.loop.run(work)
        whole, grad = torch.full_like(x, torch.nan), torch.full_like(x, torch.nan)
        for rank, (found, _) in enumerate(rows):
            world.block(rank, whole).copy_(found)
            world.block(rank, grad).copy_(blocks[rank].grad)  # type: ignore[arg-type] # it has one
        results.append((whole, grad))
        assert len({number for _, number in rows}) == 1
    for whole, grad in results[1:]:
        torch.testing.assert_close(whole, results[0][0], rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(grad, results[0][1], rtol=0, atol=TOLERANCE)


class Gate(torch.autograd.Function):
    """A custom derivative, of a weight and of volumes in a list, which have none."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, volumes: list[Tensor]) -> Tensor:
        """Scale the first volume."""
        ctx.save_for_backward(volumes[0])
        return weight * volumes[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Return the weight's alone."""
        return (grads[0] * ctx.saved_tensors[0]).sum(), None


@pytest.mark.filterwarnings("ignore:.*whole on every rank:RuntimeWarning")
def test_custom_functions_that_take_volumes_in_a_list() -> None:
    """Torch looks for derivatives of the arguments themselves alone; that of the weight must not be lost."""

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(0.7))

        def forward(self, x: Tensor) -> Any:
            return Gate.apply(self.weight, [x * x.shape[2]])  # type: ignore[no-untyped-call] # torch leaves it untyped

    found = check(Gated(), SHAPE, GRID)
    assert found.is_equal, str(found)


def test_results_in_data_classes_are_compared() -> None:
    """Nothing to compare is an error, not equality."""

    class Wraps(nn.Module):
        def __init__(self, kind: Any) -> None:
            super().__init__()
            self.conv, self.kind = nn.Conv3d(1, 1, 3, padding=1), kind

        def forward(self, x: Tensor) -> Any:
            return self.kind(self.conv(x) * x.shape[2])

    found = check(Wraps(lambda x: Output(x, [x])), SHAPE, GRID)
    assert found.is_equal
    assert max(found.modes["training"].all.values()) > 0  # type: ignore[union-attr] # it is compared
    with pytest.raises(UsageError, match="no tensor in it"):
        check(Wraps(lambda _: 3), SHAPE, GRID)


def test_gradients_of_gradients() -> None:
    """As of penalties on gradients."""
    world, x = World(evaluated(lambda _, x: x.sigmoid() * x), shape=SHAPE), volume()

    def penalty(net: Any, given: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(net(given).square().sum(), given, create_graph=True)
        result: Tensor = slope.square().sum()
        return result

    whole = x.clone().requires_grad_()
    penalty(world.whole, whole).backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
    blocks = [world.block(rank, x).clone().requires_grad_() for rank in world.ranks]
    world.loop.run(lambda rank: penalty(world.nets[rank], blocks[rank]).backward())  # type: ignore[no-untyped-call] # likewise
    assert whole.grad is not None
    for rank, block in enumerate(blocks):
        torch.testing.assert_close(block.grad, world.block(rank, whole.grad), rtol=1e-10, atol=1e-10)


def test_a_copy_is_a_network_of_its_own() -> None:
    """As averages of weights are kept."""
    world, x = World(evaluated(), shape=SHAPE), volume()
    wanted = world.whole(x)
    twins = [copy.deepcopy(net) for net in world.nets]
    for net in world.nets:
        net.gain = 7.0
        nn.init.zeros_(net.last.weight)
    world.nets = twins
    assert world.equals(world.run(x), wanted)
    for net in twins:
        net.gain = 2.0
    assert world.equals(world.run(x), 2 * (wanted - world.whole.last.bias.view(1, 1, 1, 1, 1))) is False


def test_what_runs_whole_is_told_once(recwarn: pytest.WarningsRecorder) -> None:
    """On the first rank of a group, by name and bytes; explain lists it."""
    model = evaluated(lambda _, x: x.sort(2).values)
    world = World(model, shape=SHAPE)
    for _ in range(2):
        assert world.equals(world.run(volume()), world.whole(volume()))
    told = [str(each.message) for each in recwarn if "whole on every rank" in str(each.message)]
    assert told == [
        "torch.Tensor.sort in 'the root' (Net) takes 46,080 bytes whole on every rank: it has no split form"
    ]
    table = explain(model, SHAPE, GRID)
    assert "torch.Tensor.sort on 23,040 bytes made whole" in table
    assert "functional.conv3d" in table


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("spatial", [(2, 1, 1), (2, 1, 2), (1, 3, 1)], ids=str)
def test_a_network_of_functions(spatial: tuple[int, int, int]) -> None:
    """A U-Net as many are written, on uneven extents, with layers on fewer ranks."""
    assert check(FunctionalUNet(2, 3, (4, 6, 8)), (14, 12, 17), ProcessGrid(spatial, prod(spatial))).is_equal


def test_words_in_the_place_of_volumes_are_asked_for() -> None:
    """As caches of video networks do: no tensor is a word."""

    def operation(_: Net, x: Tensor) -> Tensor:
        return x * 2 if x != "first" and not x == "second" and x != None else x * 3  # noqa: E711, SIM201 - so it is written

    found = check(Net(operation), SHAPE, GRID, min_width=0)
    assert found.is_equal, str(found)
    assert Block.__module__ == "torch"  # by which opt_einsum tells whose tensors they are


class Counts(nn.Module):
    """Counts its calls, and does something else every so many of them."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.calls, self.every = 0, every

    def forward(self, x: Tensor) -> Tensor:
        """Return the volume, shifted by what was counted."""
        self.calls += 1
        return functional.relu(x * x.shape[2]) + self.calls // self.every


def test_a_counter_of_passes_is_told_of() -> None:
    """Each pass is recorded anew and right; after some in a row a warning names the attribute, once."""
    model, x = Counts(1).double(), volume()
    grid = ProcessGrid()
    split = shard(model, grid, shape=SHAPE, exchange=NoExchange(grid))
    model.calls = 0
    twin = Counts(1).double()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(8):
            assert torch.equal(split(x), twin(x))
    (warning,) = [each for each in told if "times in a row" in str(each.message)]
    assert "Counts was recorded 4 times in a row, because 'calls' had another value" in str(warning.message)


def test_modes_in_turn_are_not_told_of() -> None:
    """Training and evaluation take turns in every program."""
    model, x = Net().double(), volume()
    grid = ProcessGrid()
    split = shard(model, grid, shape=SHAPE, exchange=NoExchange(grid))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(10):
            split.train(number % 2 == 0)(x)


class Noisy(nn.Module):
    """Adds noise of its own to a volume, as diffusion and variational networks do."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the volume with noise."""
        y = functional.relu(x * x.shape[2])
        return y + torch.randn_like(y) * torch.rand_like(y, dtype=torch.float64) + torch.randint_like(y, 0, 9)


def test_noise_is_that_of_one_process_and_nothing_is_sent_for_it() -> None:
    """Every voxel gets the number that it has in one process; the plan has no message for it, and tells its bytes."""
    world, x = World(Noisy(), shape=SHAPE), volume()
    torch.manual_seed(3)
    torch.manual_seed(pass_seed())  # as the first rank draws it
    wanted = world.whole(x)
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert world.equals(world.run(x), wanted)
    rows = [line.split() for line in str(explain(Noisy(), SHAPE, GRID)).splitlines() if "_like" in line]
    assert [row[-4:-2] for row in rows] == [["0", "0.0"]] * 3  # messages, and KiB received
