"""A trace that computes something else than forward is not used, by whatever forward took the wrong branch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from voxload.engine import Loopback, check, explain, shard
from voxload.engine.graph.faithful import is_faithful
from voxload.engine.graph.sharded import TracedModel
from voxload.engine.graph.trace import trace
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow, UNet3D

GRID = ProcessGrid((2, 1, 1), 2)
Operation = Callable[["Net", Tensor], Tensor]


class Net(nn.Module):
    """Two convolutions, with an operation between them that the test gives."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.first, self.second = nn.Conv3d(1, 2, 3, padding=1), nn.Conv3d(2, 2, 3, padding=1)
        self.norm = nn.BatchNorm3d(2)
        self.operation = operation

    def forward(self, x: Tensor) -> Tensor:
        """Apply both and the operation."""
        result: Tensor = self.second(self.operation(self, self.first(x)))
        return result


def _traced(model: nn.Module, shape: tuple[int, int, int] | None = (8, 8, 8)) -> None:
    """Trace a network and compare the trace with it."""
    TracedModel(model, (True, False, False)).check(shape)


def _shared_write(_: Net, x: Tensor) -> Tensor:
    y = x
    y += 1
    return x * y


def _written_view(_: Net, x: Tensor) -> Tensor:
    part = x[:, :1]
    part += 1
    return x


_is_tensor: Any = torch.is_tensor  # without what they tell type checkers of a branch
_jit_isinstance: Any = torch.jit.isinstance


def _when(test: Callable[[Any], bool]) -> Operation:
    """Return an operation that normalises where a test of the volume's type holds."""
    return lambda net, x: net.norm(x) if test(x) else x


BRANCHES: dict[str, Operation] = {
    "isinstance": _when(lambda x: isinstance(x, Tensor)),
    "not a proxy": _when(lambda x: not isinstance(x, fx.Proxy)),
    "exact type": _when(lambda x: type(x) is Tensor),
    "is_tensor": _when(_is_tensor),
    "jit": _when(lambda x: bool(_jit_isinstance(x, Tensor))),
    "class name": _when(lambda x: type(x).__name__ == "Tensor"),
    "another input": lambda net, x: x + (net.norm(x) if _is_tensor(x) else x),
    "a number": lambda _, x: x * (2.0 if _is_tensor(x) else 3.0),
    "shared write": _shared_write,
    "written view": _written_view,
    "gradient mode": lambda _, x: x * 2 if torch.is_grad_enabled() else x,
    "autocast": lambda _, x: x * 2 if torch.is_autocast_enabled("cpu") else x,
}


@pytest.mark.parametrize("name", BRANCHES)
def test_another_computation_is_refused(name: str) -> None:
    """Wrong results would follow, or gradients."""
    with pytest.raises(UsageError, match="forward of Net: found"):
        _traced(Net(BRANCHES[name]))


REFUSED = {"exact type": "another way for a block", "class name": "another way for a block", "written view": "add_"}
"""What the network's own forward on blocks would not do either."""


@pytest.mark.few_cases(12)
@pytest.mark.parametrize("name", BRANCHES)
def test_its_own_forward_runs_instead(name: str) -> None:
    """It takes the branch that the network takes in one process, or is refused too."""
    torch.manual_seed(0)
    with pytest.raises(UsageError, match=REFUSED[name]) if name in REFUSED else nullcontext():
        assert check(Net(BRANCHES[name]), (8, 8, 8), GRID).is_equal


@pytest.mark.parametrize("name", ["isinstance", "shared write"])
@pytest.mark.parametrize("shape", [None, (512, 512, 512)], ids=["unknown", "huge"])
def test_shapes_are_enough(name: str, shape: tuple[int, int, int] | None) -> None:
    """Whatever shape is given, and whether the network is computed or only its shapes are."""
    with pytest.raises(UsageError, match="forward of Net: found"):
        _traced(Net(BRANCHES[name]), shape)


@pytest.mark.parametrize("training", [True, False])
def test_a_branch_in_one_mode_is_refused(training: bool) -> None:
    """A network is compared in training and in evaluation, whichever it is in."""

    def operation(net: Net, x: Tensor) -> Tensor:
        result: Tensor = net.norm(x) if _is_tensor(x) and net.training is training else x
        return result

    with pytest.raises(UsageError, match="forward of Net: found"):
        _traced(Net(operation).train(not training))


@pytest.mark.long
def test_monai_basic_unet_is_not_traced() -> None:
    """Its decoder asks torch.jit.isinstance: the trace leaves out every skip."""
    from monai.networks.nets import BasicUNet  # noqa: PLC0415 - takes seconds and 200 MiB

    with pytest.raises(UsageError, match="forward of BasicUNet"):
        _traced(BasicUNet(3, 1, 2, features=(4, 4, 8, 8, 8, 4)), (32, 32, 32))


def test_explain_shows_what_is_run() -> None:
    """The calls of its own forward, and no trace that is not used; of a trace that is, its layers."""
    assert "functional.conv3d" in explain(Net(BRANCHES["isinstance"]), (8, 8, 8), GRID)
    assert "functional.conv3d" not in explain(Net(_augmented), (8, 8, 8), GRID)


def _augmented(net: Net, x: Tensor) -> Tensor:
    x += net.norm(x)
    x *= 2
    return x


ALIKE: dict[str, Operation] = {
    "augmented": _augmented,
    "module in place": lambda _, x: nn.functional.leaky_relu(x, inplace=True),
    "statistics": lambda net, x: net.norm(x),
}


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize("shape", [(8, 8, 8), None, (512, 512, 512)], ids=["small", "unknown", "huge"])
def test_the_same_computation_is_accepted(name: str, shape: tuple[int, int, int] | None) -> None:
    """Writes in place that nobody else sees compute the same, and the network is left as it was."""
    net = Net(ALIKE[name])
    before, random = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    _traced(net, shape)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("make", [partial(CosmoFlow, 512), partial(UNet3D, 1, 2)], ids=["CosmoFlow", "UNet3D"])
def test_large_networks_take_no_memory(make: Callable[[], nn.Module]) -> None:
    """What is too large to be computed is compared by shapes alone: an activation of 512^3 would be gigabytes."""
    _traced(make(), None)


def test_a_normalisation_of_one_channel_is_compared_by_its_shape() -> None:
    """Its mean is one number with an axis, which torch does not mix with shapes alone; MONAI's AttentionUnet has it."""
    layers = (nn.Conv3d(1, 1, 3, padding=1), nn.BatchNorm3d(1), nn.Conv3d(1, 64, 5, padding=2))
    model = nn.Sequential(*layers, nn.Conv3d(64, 64, 3, padding=1))
    assert is_faithful(model, trace(model), (512, 512, 512))


class Headed(nn.Module):
    """A dense layer that takes volumes of 6 x 6 x 6 alone, which no rank knows before the first one comes."""

    def __init__(self, *, doubtful: bool) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv3d(1, 2, 3, padding=1), nn.Linear(2 * 6**3, 3)
        self.doubtful = doubtful

    def forward(self, x: Tensor) -> Tensor:
        """Return three numbers."""
        x = self.conv(x)
        if self.doubtful and _is_tensor(x):
            x = x * 2
        result: Tensor = self.head(x.flatten(1))
        return result


@pytest.mark.parametrize("doubtful", [True, False])
def test_the_first_volume_tells_where_none_could_be_tried(doubtful: bool) -> None:
    """The comparison is made with the first volume's channels and extents, on every rank, before its halos are sent."""
    world = Loopback(GRID)
    networks = [shard(Headed(doubtful=doubtful), GRID.at(rank), exchange=world.rank(rank)) for rank in range(2)]

    def run(rank: int) -> Any:
        return networks[rank](torch.zeros(1, 1, 3, 6, 6))

    if doubtful:
        with pytest.raises(UsageError, match="mul in forward"):
            world.run(run)
    else:
        assert [result.shape for result in world.run(run)] == [(1, 3)] * 2
