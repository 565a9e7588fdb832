"""A network that was changed after it was traced, or whose forward changes it, is refused before a voxel is sent."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from voxload.engine import Loopback, shard
from voxload.engine.graph.sharded import TracedModel
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

GRID = ProcessGrid((2, 1, 1), 2)
SHAPE = (8, 8, 8)
_factor = 2.0
SETTINGS = SimpleNamespace(shift=1.0)
TABLE = {"gain": [1.0, 2.0]}


def _outside(x: Tensor) -> Tensor:
    return x * _factor


class Part(nn.Module):
    """A module of the user's that reads attributes of its own, globals and a closure."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(2, 2, 3, padding=1)
        self.flag, self.scale, self.activation = False, 1.0, torch.relu
        self.settings = SimpleNamespace(power=1.0, note="")
        self.losses: list[float] = []

    def forward(self, x: Tensor) -> Any:
        """Return what depends on all of them."""
        x = self.activation(self.conv(x)) * self.scale * self._power()
        x = _outside(x) * TABLE["gain"][0]
        return x + SETTINGS.shift if self.flag else x - SETTINGS.shift

    def _power(self) -> float:
        return float(getattr(self.settings, "power"))  # noqa: B009 - as configurations are read


class Net(nn.Module):
    """Layers of torch around it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), Part(), nn.LeakyReLU(), nn.Dropout(0.0))
        self.last = nn.Conv3d(2, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Any:
        """Apply them."""
        found: Tensor = self.last(self.body(x))
        return found


class World:
    """Two ranks with a model each."""

    def __init__(self, model: nn.Module | None = None) -> None:
        self.whole: Any = model or Net()
        self.models = [copy.deepcopy(self.whole) for _ in range(2)]
        self.loop = Loopback(GRID)
        self.nets: list[Any] = [
            shard(model, GRID.at(rank), shape=SHAPE, exchange=self.loop.rank(rank))
            for rank, model in enumerate(self.models)
        ]

    def run(self) -> Tensor:
        """Return the joint result of a pass."""
        torch.manual_seed(3)
        self.x = torch.randn(1, 1, *SHAPE)
        blocks = [self.x[(..., *GRID.at(rank).block(SHAPE).slices)] for rank in range(2)]  # type: ignore[index] # slices
        return torch.cat(self.loop.run(lambda rank: self.nets[rank](blocks[rank])), 2)


def _to(path: str, name: str, value: Any) -> Callable[[Any], None]:
    return lambda net: setattr(net.get_submodule(path) if path else net, name, value)


def _insert(net: Any) -> None:
    net.body.append(nn.ReLU())


CHANGES: dict[str, Callable[[Any], None]] = {
    "flag": lambda net: setattr(net.body[1], "flag", not net.body[1].flag),
    "number": _to("body.1", "scale", 3.0),
    "function": _to("body.1", "activation", torch.sigmoid),
    "object": lambda net: setattr(net.body[1].settings, "power", 2.0),
    "layer": _to("body", "2", nn.Conv3d(2, 2, 3, padding=1)),
    "added": _insert,
    "window": _to("last", "dilation", (2, 2, 2)),
}


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("side", ["model", "split form"])
@pytest.mark.parametrize("kind", CHANGES)
def test_a_changed_network_is_refused_on_all_ranks(kind: str, side: str) -> None:
    """Whichever of the two objects was changed: the trace would go on with what was."""
    world = World()
    for one in world.models if side == "model" else world.nets:
        CHANGES[kind](one)
    with pytest.raises(UsageError, match=r"a split network: found .* changed"):
        world.run()


def test_a_change_on_one_rank_is_an_error_on_both() -> None:
    """The other one would wait for a message that does not come."""
    world = World()
    CHANGES["flag"](world.nets[1])

    def run(rank: int) -> str:
        with pytest.raises(UsageError) as caught:
            world.nets[rank](torch.zeros(1, 1, *GRID.at(rank).block(SHAPE).shape))
        return str(caught.value)

    first, second = world.loop.run(run)
    assert first.startswith("rank 1: found that it refuses")
    assert "changed" in second


@pytest.mark.parametrize("change", ["global", "attribute of a global", "container"])
def test_what_forward_reads_outside_is_part_of_it(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In functions that it calls, too."""
    world = World()
    if change == "global":
        monkeypatch.setitem(globals(), "_factor", 5.0)
    elif change == "container":
        monkeypatch.setitem(TABLE, "gain", [3.0, 2.0])
    else:
        monkeypatch.setattr(SETTINGS, "shift", 4.0)
    with pytest.raises(UsageError, match="which forward reads, changed"):
        world.run()


def test_what_a_trace_does_not_keep_may_change() -> None:
    """Weights, rates of dropout, slopes, and attributes that forward does not read: results stay those of the whole."""
    world = World()
    for net in (world.whole, *world.nets):
        net.body[2].negative_slope = 0.7
        net.body[3].p = 0.5
        net.body[1].losses.append(1.0)
        net.body[1].settings.note = "epoch 2"
        with torch.no_grad():
            net.last.weight.mul_(2)
        net.eval()
    assert torch.allclose(world.run(), world.whole(world.x), atol=1e-5)
    copies = [copy.deepcopy(net) for net in world.nets]
    world.nets[0].body[1].scale = 9.0
    world.nets = copies
    assert torch.allclose(world.run(), world.whole(world.x), atol=1e-5)


class Wrapper(nn.Module):
    """As activation checkpointing wraps a layer."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *values: Any, **words: Any) -> Any:
        """Call it."""
        return self.inner(*values, **words)


def test_a_layer_may_be_wrapped() -> None:
    """The layer itself is still there."""
    world = World()
    for net in world.nets:
        net.body[1] = Wrapper(net.body[1])
    assert torch.allclose(world.run(), world.whole(world.x), atol=1e-5)


class Keeping(Net):
    """A network whose forward keeps something."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.seen = how, 0
        self.previous: Tensor | None = None
        self.features: list[Any] = []

    def forward(self, x: Tensor) -> Any:
        """Return the network's result; also that of the call before, where it keeps that."""
        y = super().forward(x)
        if self.how == "count":
            self.seen += 1
            return y if self.seen < 99 else 2 * y
        if self.how == "list":
            self.features.append(y)
            return y
        result = y if self.previous is None else y + self.previous
        self.previous = y
        return result


@pytest.mark.parametrize("how", ["count", "list", "previous"])
def test_a_forward_that_keeps_something_is_not_traced(how: str) -> None:
    """It would be kept when forward is traced, and never again; the model is left as it was."""
    model = Keeping(how)
    with pytest.raises(UsageError, match="found a change of"):
        TracedModel(model, (True, False, False)).check(SHAPE)
    assert (model.seen, model.previous, model.features) == (0, None, [])


@pytest.mark.parametrize("how", ["count", "list"])
def test_what_forward_keeps_is_kept(how: str) -> None:
    """Its own forward runs, in every pass."""
    world = World(Keeping(how))
    for _ in range(2):
        assert torch.allclose(world.run(), world.whole(world.x), atol=1e-5)
    assert [net.seen for net in world.nets] == [world.whole.seen] * 2
    assert [len(net.features) for net in world.nets] == [len(world.whole.features)] * 2


def test_volumes_of_an_earlier_pass_are_refused() -> None:
    """No recording of one pass knows of them."""
    world = World(Keeping("previous"))
    assert torch.allclose(world.run(), world.whole(world.x), atol=1e-5)
    with pytest.raises(UsageError, match="another way through forward"):
        world.run()


class Doubling(nn.Module):
    """A module that does more than its forward when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(2, 2, 3, padding=1)

    def __call__(self, x: Tensor) -> Any:
        """Double what forward gives."""
        return 2 * super().__call__(x)

    def forward(self, x: Tensor) -> Any:
        """Convolve."""
        return self.conv(x)


def _doubling() -> nn.Module:
    return nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), Doubling())


def _doubled() -> nn.Module:
    model = nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.Conv3d(2, 2, 3, padding=1))
    forward = model[1].forward
    model[1].forward = lambda x: 2 * forward(x)
    return model


OWN = {"__call__ of its own": _doubling, "forward of its own": _doubled}


@pytest.mark.parametrize("what", OWN)
def test_modules_with_calls_of_their_own(what: str) -> None:
    """A trace would go past them; the network's own forward does not."""
    with pytest.raises(UsageError, match=what):
        TracedModel(OWN[what](), (True, False, False)).check(SHAPE)
    torch.manual_seed(0)
    world = World(OWN[what]())
    assert torch.allclose(world.run(), world.whole(world.x), atol=1e-5)


def test_a_network_with_a_forward_of_its_own_is_refused() -> None:
    """It would be called in place of the engine's."""
    model = Keeping("count")
    forward = model.forward
    model.forward = lambda x: 2 * forward(x)  # type: ignore[method-assign] # as some libraries do
    with pytest.raises(UsageError, match="a forward of its own, which its class does not have"):
        shard(model, GRID, shape=SHAPE, exchange=Loopback(GRID).rank(0))
