"""Differences between a split network on virtual ranks and the network itself in one process, in double precision."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from voxload.engine.exchange.in_process import Loopback
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.forward.passes import pass_seed
from voxload.engine.model.pytrees import leaves, mapped
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

_TYPES: Mapping[Any, torch.dtype] = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
_NAMES = {"float": "double", "half": "double", "bfloat16": "double", "cfloat": "cdouble", "chalf": "cdouble"}
_CASTS: Mapping[Any, Any] = {getattr(Tensor, one): getattr(Tensor, other) for one, other in _NAMES.items()}


def to_double(tensor: Tensor) -> Tensor:
    """Return a tensor on the host, in double precision where it has numbers with a precision."""
    return tensor.to("cpu", _TYPES.get(tensor.dtype, tensor.dtype))


class DoublePrecision(TorchFunctionMode):
    """While it is entered, in this thread, what asks torch for single or half precision gets double precision.

    Networks normalise in single precision, or make complex numbers of it, whatever they are given; what two runs of
    them differ by would be its rounding.
    """

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Carry a call out with other types."""
        given = kwargs or {}
        if any(isinstance(leaf, torch.dtype) for leaf in leaves((args, given))):
            args, given = mapped((args, given), _type)
        return _CASTS.get(func, func)(*args, **given)


def _type(leaf: Any) -> Any:
    return _TYPES.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf


Split = Callable[[nn.Module, ProcessGrid, Exchange], nn.Module]
"""Makes a network run split, for one rank of a grid and what carries its messages."""
RESULT, INPUT = "result", "gradient of the input"
"""Names of the quantities that every network has."""
_MEAN = "running_mean"
"""Name of the buffers beside which there is a variance."""
_TINY = 1e-300
_SEED = 0
"""Of the random numbers from which each pass draws its own seed."""
_ROUNDING = 1e-8
"""Largest relative difference that is rounding, whatever it is of."""


@dataclass(frozen=True, slots=True)
class Differences:
    """How far a split network is from the network itself; each relative to the largest value of one process."""

    values: dict[str, float]
    """Of the results, and of the buffers afterwards by their names."""
    gradients: dict[str, float]
    """Of the gradients of the input and, by their names, of the parameters: these relative to the largest of all."""

    @property
    def all(self) -> dict[str, float]:
        """Both; a parameter and a buffer never have one name."""
        return self.values | self.gradients


def differences(
    model: nn.Module, x: Tensor, spatial: Sequence[int], split: Split, *, args: Sequence[Any] = ()
) -> Differences | None:
    """Return how far `model` split over virtual ranks is from `model` itself, for the volume `x`.

    One process and the ranks draw from one seed, as the ranks of a sample group do. None where the two differ and
    ``forward`` draws random numbers: they may have been drawn in another way, such as dropout's by positions.

    Every rank gets its block, pulls at its part of the result with the same random numbers as one process does, and
    has buffers of its own. Gradients of the parameters are summed over the ranks.

    Parameters
    ----------
    model
        The network, on the host; it is left as it is, its parameters' gradients and torch's random numbers too.
    x
        (B, C, D, H, W), in the type of the network.
    spatial
        Blocks along (d, h, w): one sample group of so many ranks.
    split
        What makes the network of a rank; `voxload.engine.shard` with its settings. It may raise.
    args
        What forward takes beside the volume: tensors of its extents are cut like it, others are whole.
    """
    with torch.random.fork_rng(devices=[]):
        return _Comparison(model, x, spatial, split, args=args).run()


def relative_error(found: Tensor, wanted: Tensor, *, scale: float | None = None) -> float:
    """Return the largest difference relative to `scale`, by default to the largest wanted value.

    Infinite where shapes or types differ, or what is no finite number in one is another thing in the other.
    """
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return inf
    if torch.equal(found, wanted):
        return 0.0
    numbers = wanted.isfinite()
    if not torch.equal(found[~numbers].nan_to_num(), wanted[~numbers].nan_to_num()):
        return inf
    largest = scale if scale is not None else _largest(wanted[numbers])
    apart = _largest((found - wanted)[numbers])
    return apart / max(largest, _TINY) if apart < inf else inf


class _Comparison:
    """One comparison."""

    def __init__(
        self, model: nn.Module, x: Tensor, spatial: Sequence[int], split: Split, *, args: Sequence[Any] = ()
    ) -> None:
        self._x, self._args, self._ranks = x, tuple(args), prod(spatial)
        self._loopback = Loopback(ProcessGrid(tuple(spatial), self._ranks))  # type: ignore[arg-type] # three numbers
        self._plain = _fresh(model)
        # Parameters are shared by the ranks, who take turns: their gradients add up by themselves.
        shared = _fresh(model)
        kept = {id(weight): weight for weight in shared.parameters()}
        self._twins = [copy.deepcopy(shared, dict(kept)) for _ in range(self._ranks)]
        self._networks = [
            split(twin, self._loopback.grid.at(rank), self._loopback.rank(rank))
            for rank, twin in enumerate(self._twins)
        ]

    def run(self) -> Differences | None:
        """Run both, forward and backward."""
        whole = self._x.clone().requires_grad_()
        torch.manual_seed(_SEED)
        torch.manual_seed(pass_seed())
        state = torch.get_rng_state()
        with DoublePrecision():
            wanted = _tensors(self._plain(whole, *self._args))
        if not wanted:
            raise UsageError(
                f"result of {type(self._plain).__name__}",
                found="no tensor in it",
                expected="tensors, in tuples, lists, dictionaries or data classes",
            )
        draws = not torch.equal(state, torch.get_rng_state())
        pulls = [torch.randn_like(each) if each.is_floating_point() else each for each in wanted]
        with DoublePrecision():
            try:
                _pull(wanted, pulls)
            except RuntimeError as error:
                raise UsageError(
                    f"backward pass of {type(self._plain).__name__}",
                    found=f"{type(error).__name__} in one process: {next(iter(str(error).splitlines()), '')}",
                    expected="gradients of all its results, to compare with",
                    remedy="mend the network; it fails without voxload too",
                ) from error

        def work(rank: int) -> tuple[float, Tensor]:
            block = self._block(rank, self._x).clone().requires_grad_()
            args = mapped(self._args, lambda each: self._block(rank, each) if self._is_volume(each) else each)
            torch.manual_seed(_SEED)
            found = _tensors(self._networks[rank](block, *args))
            if len(found) != len(wanted):
                return inf, torch.zeros_like(block)
            errors, own_pulls = [], []
            for one, other, pull in zip(found, wanted, pulls, strict=True):
                is_whole = one.shape == other.shape
                errors.append(relative_error(one.detach(), (other if is_whole else self._block(rank, other)).detach()))
                # Every rank pulls at a whole result, and what is summed over ranks counts it once for each.
                own_pulls.append(pull / self._ranks if is_whole else self._block(rank, pull))
            if max(errors, default=0.0) < inf:
                _pull(found, own_pulls)
            return max(errors, default=0.0), torch.zeros_like(block) if block.grad is None else block.grad

        def doubled(rank: int) -> tuple[float, Tensor]:
            with DoublePrecision():
                return work(rank)

        rows = self._loopback.run(doubled)
        wanted_grad = torch.zeros_like(whole) if whole.grad is None else whole.grad
        scale = _largest(wanted_grad)
        gradients = {
            INPUT: max(
                relative_error(grad, self._block(rank, wanted_grad), scale=scale) for rank, (_, grad) in enumerate(rows)
            )
        }
        found = Differences({RESULT: max(row[0] for row in rows)} | self._buffers(), gradients | self._weights())
        return None if draws and _ROUNDING < max(found.all.values()) < inf else found

    def _is_volume(self, value: Any) -> bool:
        """Tell whether an argument is a volume of the extents of the first one."""
        extents = self._x.shape[2:]
        return isinstance(value, Tensor) and value.shape[-len(extents) :] == extents

    def _block(self, rank: int, x: Tensor) -> Tensor:
        """Return a rank's block of a whole tensor (..., D, H, W)."""
        count = len(self._x.shape) - 2
        shape = (1,) * (3 - count) + tuple(x.shape[-count:])
        own: Any = (..., *self._loopback.grid.at(rank).block(shape).slices[-count:])
        return x[own]

    def _weights(self) -> dict[str, float]:
        """Return the errors of the parameters' gradients."""
        pairs = {
            name: (self._twins[0].get_parameter(name), weight)
            for name, weight in self._plain.named_parameters()
            if weight.requires_grad
        }
        grads = {name: (_grad(twin), _grad(weight)) for name, (twin, weight) in pairs.items()}
        # One before a normalisation is zero but for rounding; the largest of all says what rounding is.
        scale = max((_largest(wanted) for _, wanted in grads.values()), default=1.0)
        return {name: relative_error(found, wanted, scale=scale) for name, (found, wanted) in grads.items()}

    def _buffers(self) -> dict[str, float]:
        """Return the errors of the buffers, such as running statistics, of the rank where they are largest."""
        found, buffers = {}, dict(self._plain.named_buffers())
        for name, wanted in buffers.items():
            variance, scale = buffers.get(name.removesuffix(_MEAN) + "running_var"), None
            if name.endswith(_MEAN) and variance is not None:
                # Behind a normalisation it is zero but for rounding; the spread beside it says what that is.
                scale = max(_largest(wanted), _largest(variance) ** 0.5)
            found[name] = max(relative_error(twin.get_buffer(name), wanted, scale=scale) for twin in self._twins)
        return found


def _fresh(model: nn.Module) -> nn.Module:
    """Return a copy of a model without gradients."""
    twin = copy.deepcopy(model)
    twin.zero_grad()
    return twin


def _tensors(result: Any) -> list[Tensor]:
    """Return the tensors in a network's result."""
    return [each for each in leaves(result) if isinstance(each, Tensor)]


def _pull(results: Sequence[Tensor], pulls: Sequence[Tensor]) -> None:
    """Carry `pulls` back through the graphs of those results that have one."""
    pairs = [(one, pull) for one, pull in zip(results, pulls, strict=True) if one.requires_grad]
    if pairs:
        torch.autograd.backward([one for one, _ in pairs], [pull for _, pull in pairs])


def _grad(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


def _largest(x: Tensor) -> float:
    """Return the largest absolute value; 0 of nothing."""
    return float(x.detach().abs().max()) if x.numel() else 0.0
