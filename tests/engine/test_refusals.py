"""What has no split form is refused by name, on every rank, before anything is sent."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import checkpoint

from voxload.engine import shard
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
    x[:, :, 0] = 0
    return x


FUNCTIONAL: dict[str, tuple[Any, str]] = {
    "conv3d": (lambda net, x: functional.conv3d(x, net.conv.weight.mean(1, keepdim=True)), "conv3d"),
    "max_pool3d": (lambda _, x: functional.max_pool3d(x, 2), "max_pool3d"),
    "interpolate": (lambda _, x: functional.interpolate(x, scale_factor=2), "interpolate"),
    "pad": (lambda _, x: functional.pad(x, (1, 1)), "pad"),
    "batch_norm": (lambda _, x: functional.batch_norm(x, None, None, training=True), "batch_norm"),
    "dropout": (lambda _, x: functional.dropout(x, 0.5), "dropout"),
    "softmax": (lambda _, x: functional.softmax(x, 2), "softmax"),
    "mean": (lambda _, x: x.mean((2, 3)), "mean()"),
    "amax": (lambda _, x: x.amax((2, 3, 4), keepdim=True), "amax()"),
    "torch.sum": (lambda _, x: torch.sum(x, 2), "sum"),
    "cat": (lambda _, x: torch.cat([x, x], 2), "cat"),
    "chunk": (lambda _, x: x.chunk(2, 3)[0], "chunk()"),
    "flatten of channels last": (lambda _, x: x.permute(0, 2, 3, 4, 1).flatten(1), "flatten()"),
    "slice": (lambda _, x: x[:, :, ::2], "getitem"),
    "in-place slice": (_in_place, "item assignment"),
    "roll": (lambda _, x: torch.roll(x, 1, 2), "roll"),
    "permute": (lambda _, x: x.permute(0, 1, 4, 3, 2), "permute()"),
    "transpose": (lambda _, x: x.mT, "getattr"),
    "reshape": (lambda _, x: x.reshape(2, -1), "reshape()"),
    "extent as number": (lambda _, x: x * x.shape[2], "split volume's extents"),
    "extent by size": (lambda _, x: x * x.size(3), "size()"),
    "parameter of the volume": (lambda net, x: x * net.line, "mul on a split volume"),
    "new tensor": (lambda _, x: x + torch.ones(1), "a tensor of shape (1,) made inside it"),
    "rand_like": (lambda _, x: x + torch.rand_like(x), "rand_like"),
    "no_grad": (_no_grad, "no_grad"),
    "autocast": (lambda _, x: _under_autocast(x), "autocast"),
    "branch on shape": (_depth, "split volume's extents|depend on values or shapes"),
    "branch on value": (_value, "depend on values or shapes"),
    "coin": (_coin, "random numbers"),
    "custom function": (lambda _, x: Double.apply(x), "Double"),  # type: ignore[no-untyped-call] # torch leaves it untyped
    "reentrant checkpoint": (
        lambda _, x: checkpoint.checkpoint(torch.tanh, x, use_reentrant=True),
        "CheckpointFunction",
    ),
}


def _under_autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return x * 2


LAYERS: dict[str, tuple[nn.Module, str]] = {
    "LayerNorm": (nn.LayerNorm(4), "LayerNorm"),
    "LPPool3d": (nn.LPPool3d(2, 2), "LPPool3d"),
    "FractionalMaxPool3d": (nn.FractionalMaxPool3d(2, output_size=2), "FractionalMaxPool3d"),
    "RReLU": (nn.RReLU(), "RReLU"),
    "Softmax": (nn.Softmax(2), "Softmax"),
    "BatchNorm2d": (nn.BatchNorm2d(2), "BatchNorm2d"),
    "AlphaDropout": (nn.AlphaDropout(0.5), "AlphaDropout"),
    "Upsample": (nn.Upsample(scale_factor=2, mode="bilinear"), "mode='bilinear'"),
    "adaptive indices": (nn.AdaptiveMaxPool3d(1, return_indices=True), "return_indices=True"),
    "Linear": (nn.Linear(8, 8), "Linear"),
    "indices": (nn.MaxPool3d(2, return_indices=True), "return_indices=True"),
    "Unflatten": (nn.Unflatten(1, (1, 2)), "Unflatten"),
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
def test_layers_without_a_split_form_are_refused_by_name(name: str) -> None:
    """The error names the layer's path and class, whether it trains or not."""
    layer, match = LAYERS[name]
    model = nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.Sequential(nn.ReLU(), layer), nn.Flatten())
    _refused(model, f"layer '1.1'.*{match}")
    _refused(model.eval(), f"layer '1.1'.*{match}")


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_operations_in_forward_are_refused_by_name(name: str) -> None:
    """Functions, methods and everything that a trace would lose are refused, never run on a block."""
    operation, match = FUNCTIONAL[name]
    _refused(Net(operation), match)


def test_a_subclass_is_not_its_base() -> None:
    """A subclass of a known layer may compute anything; what it does inside is refused, and its name is given."""
    _refused(nn.Sequential(nn.ReLU(), Wide(1, 2, 3, padding=1), nn.Flatten()), "conv3d.*in '1' (Wide)")


def test_the_training_branch_alone_is_enough_for_a_refusal() -> None:
    """A model whose evaluation branch would do is refused for what it does in training."""
    model = Net(lambda net, x: functional.dropout(x) if net.training else x)
    _refused(model.eval(), "dropout")


def test_hooks_are_refused() -> None:
    """A hook would see a block as if it were the volume."""
    model = Net(lambda _, x: x)
    handle = model.conv.register_forward_hook(lambda _module, _args, y: y * 2)
    _refused(model, "layer 'conv' (Conv3d).*hooks")
    handle.remove()
    shard(model, ProcessGrid((2, 1, 1), 2), shape=(8, 8, 8), exchange=Silent())


def test_models_of_another_form_are_refused() -> None:
    """A result that is still split, a second argument, a shared layer and a second split are refused."""

    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x * 2

    _refused(Pair(), "still split")

    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + y

    _refused(Two(), "one argument")

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool = nn.MaxPool3d(3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.pool(self.pool(x).flatten(1).unflatten(1, (1, 3, 3, 3)))
            return y

    _refused(Shared(), "layer 'pool'.*after the flatten")

    class Extra(nn.Module):
        def get_extra_state(self) -> int:
            return 1

        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1)

    _refused(Extra(), "Extra.*state_dict")
    grid = ProcessGrid((2, 1, 1), 2)
    once = shard(nn.Sequential(nn.Flatten()), grid, shape=(8, 8, 8), exchange=Silent())
    with pytest.raises(UsageError, match="already split"):
        shard(once, grid, exchange=Silent())


def test_shapes_that_cannot_be_split_are_refused() -> None:
    """More ranks than voxels, a window that does not fit, and sums of unequal volumes are refused at once."""
    grid = ProcessGrid((4, 1, 1), 4)
    flat = nn.Sequential(nn.Conv3d(1, 1, 5), nn.Flatten())
    with pytest.raises(UsageError, match="more ranks than voxels"):
        shard(flat, grid, shape=(3, 8, 8), exchange=Silent())
    with pytest.raises(UsageError, match="Conv3d over 4 voxels along d"):
        shard(flat, grid, shape=(4, 8, 8), exchange=Silent())
    with pytest.raises(UsageError, match="three extents"):
        shard(flat, grid, shape=(8, 8), exchange=Silent())
    unequal = Net(lambda _, x: x)
    unequal.operation = lambda net, x: net.conv_two(x) + x
    unequal.conv_two = nn.Conv3d(2, 2, 3)
    with pytest.raises(UsageError, match=r"'add'.*cut differently"):
        shard(unequal, grid, shape=(8, 8, 8), exchange=Silent())


def test_without_torch_distributed_there_is_a_remedy() -> None:
    """A refusal comes first; a model that is fine then asks for the process group."""
    grid = ProcessGrid((2, 1, 1), 2)
    with pytest.raises(UsageError, match="BatchNorm2d"):
        shard(nn.Sequential(nn.BatchNorm2d(1), nn.Flatten()), grid, shape=(8, 8, 8))
    with pytest.raises(UsageError, match="init_process_group"):
        shard(nn.Sequential(nn.Flatten()), grid, shape=(8, 8, 8))


def test_a_refusal_leaves_the_model_as_it_was() -> None:
    """Training modes and attributes are those of before."""
    model = Net(lambda _, x: x.mean(2))
    model.conv.eval()
    before = set(model.__dict__)
    _refused(model, "mean")
    assert (model.training, model.conv.training) == (True, False)
    assert set(model.__dict__) == before
