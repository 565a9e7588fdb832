"""What has no split form is refused by name, on every rank, before anything is sent."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import checkpoint

from voxload.engine import check, shard
from voxload.errors import UsageError
from voxload.grid import ProcessGrid


class Silent:
    """An exchange that must not be used."""

    carries_graph = False
    key = -1

    def start(self, axis: int, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Any:
        """Fail the test."""
        pytest.fail(f"messages along {axis}: {outgoing} {incoming}")

    def reduce(self, tensor: Tensor, *, world: bool) -> None:
        """Fail the test."""
        pytest.fail(f"sum of {tuple(tensor.shape)} {world}")

    def share(self, numbers: Sequence[int]) -> list[tuple[int, ...]]:
        """Fail the test."""
        pytest.fail(f"numbers: {numbers}")


class Double(torch.autograd.Function):
    """A custom derivative, which a trace would lose."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        """Double."""
        return x * 2

    @staticmethod
    def backward(_ctx: Any, *grads: Any) -> Any:
        """Triple, on purpose."""
        return grads[0] * 3


class Wide(nn.Conv3d):
    """A subclass, which may compute anything."""


class Net(nn.Module):
    """A convolution, one doubtful operation, a flatten."""

    def __init__(self, operation: Any) -> None:
        super().__init__()
        self.conv = nn.Conv3d(1, 2, 3, padding=1)
        self.line = nn.Parameter(torch.ones(8))
        self.operation = operation

    def forward(self, x: Tensor) -> Tensor:
        """Apply the operation between convolution and flatten."""
        result: Tensor = self.operation(self, self.conv(x)).flatten(1)
        return result


def _no_grad(_: Net, x: Tensor) -> Tensor:
    with torch.no_grad():
        return x * 2


def _depth(_: Net, x: Tensor) -> Tensor:
    return x * 2 if x.shape[2] > 4 else x


def _value(_: Net, x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x


def _coin(_: Net, x: Tensor) -> Tensor:
    return x * 2 if random.random() > 0.5 else x


def _in_place(_: Net, x: Tensor) -> Tensor:
    x[x > 0] = 0
    return x


class Pair(nn.Module):
    """A result that is two volumes."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return them."""
        return x, x * 2


class Again(nn.Module):
    """A layer that is called behind the flatten once more."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool3d(3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to the volume, and to what a vector is made into."""
        y: Tensor = self.pool(self.pool(x).flatten(1)[:, :27].unflatten(1, (1, 3, 3, 3)))
        return y


class Extra(nn.Module):
    """A state of its own."""

    def get_extra_state(self) -> int:
        """Return it."""
        return 1

    def forward(self, x: Tensor) -> Tensor:
        """Flatten."""
        return x.flatten(1)


def _hooked() -> nn.Module:
    model = Net(lambda _, x: x)
    model.conv.register_forward_hook(lambda _module, _args, y: y - y.mean())
    model.register_forward_hook(lambda _module, _args, y: y * 3)
    return model


RUN: dict[str, Any] = {
    "conv3d": lambda net, x: functional.conv3d(x, net.conv.weight.mean(1, keepdim=True).repeat(1, 2, 1, 1, 1)),
    "max_pool3d": lambda _, x: functional.max_pool3d(x, 2),
    "interpolate": lambda _, x: functional.interpolate(x, scale_factor=2),
    "pad": lambda _, x: functional.pad(x, (1, 1)),
    "batch_norm": lambda _, x: functional.batch_norm(x, None, None, training=True),
    "softmax": lambda _, x: functional.softmax(x, 2),
    "mean": lambda _, x: x.mean((2, 3)),
    "amax": lambda _, x: x.amax((2, 3, 4), keepdim=True),
    "torch.sum": lambda _, x: torch.sum(x, 2),
    "cat": lambda _, x: torch.cat([x, x], 2),
    "chunk": lambda _, x: x.chunk(2, 3)[0],
    "flatten of channels last": lambda _, x: x.permute(0, 2, 3, 4, 1).flatten(1),
    "slice": lambda _, x: x[:, :, ::2],
    "roll": lambda _, x: torch.roll(x, 1, 2),
    "permute": lambda _, x: x.permute(0, 1, 4, 3, 2),
    "transpose": lambda _, x: x.mT,
    "reshape": lambda _, x: x.reshape(2, -1),
    "extent as number": lambda _, x: x * x.shape[2],
    "extent by size": lambda _, x: x * x.size(3),
    "parameter of the volume": lambda net, x: x * net.line,
    "new tensor": lambda _, x: x + torch.ones(1),
    "no_grad": _no_grad,
    "autocast": lambda _, x: _under_autocast(x),
    "branch on shape": _depth,
    "custom function": lambda _, x: Double.apply(x),  # type: ignore[no-untyped-call] # torch leaves it untyped
    "checkpoint": lambda _, x: checkpoint.checkpoint(torch.tanh, x, use_reentrant=False),
}
"""What a trace cannot keep, and the network's own forward does as it is."""
MODELS: dict[str, Any] = {
    "LayerNorm": lambda: nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.LayerNorm(8), nn.Flatten()),
    "LPPool3d": lambda: nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.LPPool3d(2, 2), nn.Flatten()),
    "Softmax": lambda: nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.Softmax(2), nn.Flatten()),
    "Linear": lambda: nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.Linear(8, 8), nn.Flatten()),
    "AlphaDropout": lambda: nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.AlphaDropout(0.0), nn.Flatten()),
    "Unflatten": lambda: nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.Unflatten(1, (1, 2)), nn.Flatten()),
    "bilinear": lambda: nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.Flatten(1, 2), nn.Upsample(scale_factor=2)),
    "a subclass of a layer": lambda: nn.Sequential(nn.ReLU(), Wide(1, 2, 3, padding=1), nn.Flatten()),
    "hooks": _hooked,
    "two results": Pair,
    "a shared layer": Again,
    "a state of its own": Extra,
}
REFUSED: dict[str, tuple[Any, str]] = {
    "in-place mask": (_in_place, "__setitem__"),
    "branch on value": (_value, "__bool__"),
    "coin": (_coin, "random numbers of Python"),
    "reentrant checkpoint": (
        lambda _, x: checkpoint.checkpoint(torch.tanh, x, use_reentrant=True),
        "use_reentrant=True",
    ),
    "exact class": (lambda _, x: x * 2 if type(x) is Tensor else x, "another way for a block"),
    "item": (lambda _, x: x * float(x.max()), "__float__"),
    "numbers": (lambda _, x: x * x.detach().numpy().mean(), "numpy"),
}


def _under_autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return x * 2


LAYERS: dict[str, tuple[nn.Module, str]] = {
    "BatchNorm2d": (nn.BatchNorm2d(2), "layer '1.1'.*BatchNorm2d"),
    "Upsample": (nn.Upsample(scale_factor=2, mode="bilinear"), "layer '1.1'.*mode='bilinear'"),
}


def _refused(model: nn.Module, match: str, **options: Any) -> None:
    """Check that every rank of a grid gets the same refusal."""
    texts = set()
    for rank in range(4):
        with pytest.raises(UsageError, match=match.replace("(", r"\(").replace(")", r"\)")) as caught:
            shard(model, ProcessGrid((2, 1, 2), 4, rank), shape=(8, 8, 8), exchange=Silent(), **options)
        assert "\n" not in str(caught.value)
        texts.add(str(caught.value))
    assert len(texts) == 1


@pytest.mark.parametrize("name", LAYERS)
def test_layers_that_take_no_volume_are_refused_by_name(name: str) -> None:
    """The error names the layer's path and class, whether it trains or not."""
    layer, match = LAYERS[name]
    model = nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.Sequential(nn.ReLU(), layer), nn.Flatten())
    _refused(model, match)
    _refused(model.eval(), match)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("name", REFUSED)
def test_what_differs_from_rank_to_rank_is_refused_by_name(name: str) -> None:
    """Control flow by values, and what blocks would lose, never runs on a block."""
    operation, match = REFUSED[name]
    _refused(Net(operation), match)


@pytest.mark.filterwarnings("ignore:.*whole on every rank:RuntimeWarning")
@pytest.mark.few_cases(4)
@pytest.mark.parametrize("spatial", [(2, 1, 2), (1, 3, 1)], ids=str)
@pytest.mark.parametrize("name", RUN)
def test_what_no_trace_keeps_runs_as_it_is(name: str, spatial: tuple[int, int, int]) -> None:
    """Forward, backward, training and evaluation are those of one process."""
    torch.manual_seed(0)
    assert check(Net(RUN[name]), (8, 8, 8), ProcessGrid(spatial, prod(spatial)), min_width=0).is_equal


@pytest.mark.filterwarnings("ignore:.*whole on every rank:RuntimeWarning")
@pytest.mark.few_cases(3)
@pytest.mark.parametrize("spatial", [(2, 1, 2), (1, 3, 1)], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_models_that_no_trace_keeps_run_as_they_are(name: str, spatial: tuple[int, int, int]) -> None:
    """The same, of layers, hooks, shared layers and several results."""
    torch.manual_seed(0)
    assert check(MODELS[name](), (8, 8, 8), ProcessGrid(spatial, prod(spatial)), min_width=0).is_equal


def test_beyond_the_limit_what_has_no_split_form_is_refused() -> None:
    """The error names the operation, the module, the bytes and the limit to raise."""
    _refused(Net(lambda _, x: x.sort(2).values), "sort in .*whole, it takes.*bytes.*gather_limit", gather_limit=0)


def test_the_training_branch_alone_is_enough_for_a_refusal() -> None:
    """A model whose evaluation branch would do is refused for what it does in training."""
    model = Net(lambda net, x: _value(net, x) if net.training else x)
    _refused(model.eval(), "__bool__")


def test_a_network_is_split_once() -> None:
    """A second split is refused, of either kind of split network."""
    grid = ProcessGrid((2, 1, 1), 2)
    for model in (nn.Sequential(nn.Flatten()), Pair()):
        once = shard(model, grid, shape=(8, 8, 8), exchange=Silent())
        with pytest.raises(UsageError, match="already split"):
            shard(once, grid, exchange=Silent())


def test_shapes_that_cannot_be_split_are_refused() -> None:
    """More ranks than voxels, a window that does not fit, and too few extents are refused at once."""
    grid = ProcessGrid((4, 1, 1), 4)
    flat = nn.Sequential(nn.Conv3d(1, 1, 5), nn.Flatten())
    with pytest.raises(UsageError, match="more ranks than voxels"):
        shard(flat, grid, shape=(3, 8, 8), exchange=Silent())
    with pytest.raises(UsageError, match="Conv3d over 4 voxels along d"):
        shard(flat, grid, shape=(4, 8, 8), exchange=Silent())
    with pytest.raises(UsageError, match="two extents"):
        shard(flat, grid, shape=(8, 8), exchange=Silent())


def test_without_torch_distributed_there_is_a_remedy() -> None:
    """A refusal comes first; a model that is fine then asks for the process group."""
    grid = ProcessGrid((2, 1, 1), 2)
    with pytest.raises(UsageError, match="BatchNorm2d"):
        shard(nn.Sequential(nn.BatchNorm2d(1), nn.Flatten()), grid, shape=(8, 8, 8))
    with pytest.raises(UsageError, match="init_process_group"):
        shard(nn.Sequential(nn.Flatten()), grid, shape=(8, 8, 8))


def test_a_refusal_leaves_the_model_as_it_was() -> None:
    """Training modes and attributes are those of before."""
    model = Net(_value)
    model.conv.eval()
    before = set(model.__dict__)
    _refused(model, "__bool__")
    assert (model.training, model.conv.training) == (True, False)
    assert set(model.__dict__) == before
