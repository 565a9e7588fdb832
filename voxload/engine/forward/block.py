"""Block: a tensor that stands for a whole one, of which this rank has a part, in the user's own forward.

It is a ``torch.Tensor`` to every test, has the shape, type and device of the whole, and hands every call of torch that
takes it, as a function, a method or a layer alike, to whoever made it (``__torch_function__``; torch's documentation,
"Extending torch").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.model.pytrees import PLAIN
from voxload.engine.run.torch_compile import refuse_part
from voxload.errors import InternalError

_BATCHED = 3
"""Dimensions of tokens with a batch, (L, N, E)."""
_ONE_MASK = 2
"""Dimensions of a mask for all samples and heads."""


def _attention(args: tuple[Any, ...], kwargs: dict[str, Any], block: type) -> Any:
    """Return attention with several heads; see torch.nn.functional.multi_head_attention_forward."""
    given = signature(functional.multi_head_attention_forward).bind(*args, **kwargs).arguments
    query, key, value = given["query"], given["key"], given["value"]
    masks = given.get("attn_mask"), given.get("key_padding_mask")
    unusual = ("bias_k", "bias_v", "static_k", "static_v", "add_zero_attn")
    if any(each.ndim != _BATCHED for each in (query, key, value)) or any(isinstance(each, block) for each in masks):
        return NotImplemented
    if any(given.get(name) is not None and given[name] is not False for name in unusual):
        return NotImplemented
    weights = _weights(given)
    biases = given["in_proj_bias"].chunk(3) if given.get("in_proj_bias") is not None else (None,) * 3
    heads = given["num_heads"]
    query, key, value = (
        torch.unflatten(functional.linear(each, weight, bias), -1, (heads, -1)).permute(1, 2, 0, 3)
        for each, weight, bias in zip((query, key, value), weights, biases, strict=True)
    )
    mask = _mask(*masks, heads, query)
    chance = given["dropout_p"] if given.get("training", True) else 0.0
    shares = None
    if given.get("need_weights", True) or chance:
        scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
        shares = functional.softmax(scores if mask is None else scores + mask, -1)
        shares = functional.dropout(shares, chance) if chance else shares
        found = shares @ value
    else:
        found = functional.scaled_dot_product_attention(query, key, value, mask)
    found = functional.linear(found.permute(2, 0, 1, 3).flatten(2), given["out_proj_weight"], given["out_proj_bias"])
    if shares is None or not given.get("need_weights", True):
        return found, None
    return found, shares.mean(1) if given.get("average_attn_weights", True) else shares


def _weights(given: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """Return the weights of the projections of queries, keys and values."""
    if given.get("use_separate_proj_weight"):
        return given["q_proj_weight"], given["k_proj_weight"], given["v_proj_weight"]
    weights: tuple[Tensor, ...] = given["in_proj_weight"].chunk(3)
    return weights


def _mask(own: Tensor | None, padding: Tensor | None, heads: int, like: Tensor) -> Tensor | None:
    """Return one mask that is added to scores (N, heads, L, S); in those that are given, True is left out."""

    def added(mask: Tensor) -> Tensor:
        if mask.dtype != torch.bool:
            return mask
        return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(mask, -torch.inf)

    found = None
    if own is not None:
        found = added(own) if own.ndim == _ONE_MASK else torch.unflatten(added(own), 0, (-1, heads))
    if padding is not None:
        columns = added(padding)[:, None, None]
        found = columns if found is None else found + columns
    return found


COMPOSITES: Mapping[Any, Callable[[tuple[Any, ...], dict[str, Any], type], Any]] = {
    functional.multi_head_attention_forward: _attention,
}
"""By functions, what gives the same by calls of which blocks hear one by one.

It is given positional and named arguments and the class of blocks; NotImplemented where it does not do what is asked.
"""


class Runner(Protocol):
    """Carries out calls that take blocks."""

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what a call of torch gives, for whoever called it."""

    def applied(self, apply: Callable[..., Any], function: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the custom autograd `function` gives, whose own ``apply`` is given too."""


class Block(Tensor):
    """A tensor of which this rank has a part; made by a Runner.

    Gradients are those of `local`: autograd never sees the whole.
    """

    local: Tensor
    """What this rank has of it, with its autograd graph."""
    about: Any
    """What the runner knows of it."""
    runner: Runner

    @classmethod
    def of(cls, local: Tensor, shape: Sequence[int], *, about: Any, runner: Runner) -> Self:
        """Return a block of a tensor of `shape`, of which `local` is this rank's part."""
        make: Any = Tensor._make_wrapper_subclass  # noqa: SLF001 - torch's own way
        made: Self = make(cls, tuple(shape), dtype=local.dtype, device=local.device)
        made.local, made.about, made.runner = local, about, runner
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override] # torch leaves it untyped
        """Return what is known without its values."""
        return f"Block({tuple(self.shape)}, dtype={self.dtype}, here={tuple(self.local.shape)})"

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer what is asked of the whole tensor's shape; hand everything else to the runner."""
        if torch.compiler.is_dynamo_compiling():
            refuse_part()
        if func in ASKED:
            with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - as torch's documentation has it
                return func(*args, **kwargs or {})
        if func in _COMPARISONS and isinstance(args[1], str | None):
            # Nothing is what a word is. Torch answers NotImplemented, at which it asks every argument again.
            return func is Tensor.__ne__
        composite = COMPOSITES.get(func)
        if composite is not None and (parts := composite(args, kwargs or {}, Block)) is not NotImplemented:
            return parts
        runner = runner_of(args, kwargs or {})
        if runner is None:
            raise InternalError("call of torch", found="no block among its arguments")
        return runner.call(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # torch calls a class method as its documentation has it
        cls,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[Any, Any] = {},  # noqa: B006 - torch's signature
    ) -> Any:
        """Refuse what came past `__torch_function__`."""
        raise InternalError(f"operation {func}", found="a block below the level of torch's functions")


PLAIN.add(Block)
# Where a class lives tells its library to some, such as opt_einsum, who call numpy for those that they do not know.
Block.__module__ = "torch"
_COMPARISONS: frozenset[Any] = frozenset([Tensor.__eq__, Tensor.__ne__])


def runner_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Runner | None:
    """Return the runner of the first block among arguments, in what holds them too; None where there is none."""
    waiting = [*kwargs.values(), *reversed(args)]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Block):
            return one.runner
        if isinstance(one, list | tuple):
            waiting += reversed(one)
        elif isinstance(one, dict):
            waiting += one.values()
    return None


_PROPERTIES = (
    *("shape", "ndim", "dtype", "device", "layout", "itemsize", "nbytes", "is_cuda", "is_cpu", "is_sparse"),
    *("is_quantized", "is_meta", "is_mkldnn", "is_nested", "is_xla", "is_mps", "is_xpu"),
)
_METHODS = (
    *("size", "dim", "ndimension", "numel", "nelement", "element_size", "is_floating_point", "is_complex", "is_signed"),
    *("__len__", "get_device", "is_conj", "is_neg", "is_inference"),
)
ASKED: frozenset[Any] = frozenset(
    [
        *(getattr(Tensor, name).__get__ for name in _PROPERTIES),
        *(getattr(Tensor, name) for name in _METHODS),
        *(torch.is_floating_point, torch.is_complex, torch.numel, torch.is_conj, torch.is_neg),
    ]
)
"""What torch calls when somebody asks for a tensor's shape, type or device: the whole's description answers."""
