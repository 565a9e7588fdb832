"""Functions that treat every element by itself, of one tensor or of several that meet by broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.forward.recording import Call, Given
from voxload.engine.forward.rule import Context, NoRule, Preferences, Ruling
from voxload.engine.forward.sharding import Dim, Sharding
from voxload.engine.model.pytrees import leaves, mapped

_NAMES = (
    *("abs", "absolute", "acos", "add", "addcdiv", "addcmul", "alias", "angle", "asin", "atan", "atan2", "bfloat16"),
    *("bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "bool", "byte", "ceil", "celu", "clamp", "clamp_max"),
    *("clamp_min", "clip", "clone", "complex", "conj", "contiguous", "copysign", "cos", "cosh", "cpu", "cuda"),
    *("deg2rad", "detach", "div", "divide", "double", "elu", "eq", "erf", "erfc", "exp", "exp2", "expm1"),
    *("float", "float_power", "floor", "floor_divide", "fmod", "frac", "ge", "gelu", "greater", "greater_equal", "gt"),
    *("half", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hypot", "imag", "int", "isfinite", "isinf"),
    *("isnan", "le", "leaky_relu", "lerp", "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp"),
    *("logical_and", "logical_not", "logical_or", "logical_xor", "logit", "logsigmoid", "long", "lt", "masked_fill"),
    *("maximum", "minimum", "mish", "mul", "multiply", "nan_to_num", "ne", "neg", "negative", "not_equal"),
    *("ones_like", "polar", "positive", "pow", "rad2deg", "real", "reciprocal", "relu", "relu6", "remainder", "round"),
    *("rsqrt", "rsub", "selu", "sgn", "sigmoid", "sign", "signbit", "silu", "sin", "sinc", "sinh", "softplus"),
    *("softshrink", "softsign", "sqrt", "square", "sub", "subtract", "tan", "tanh", "tanhshrink", "threshold", "to"),
    *("true_divide", "trunc", "type", "type_as", "where", "xlogy", "zeros_like", "zero", "fill", "full_like", "copy"),
    *("requires_grad",),
)
"""Names of such functions; methods of tensors, and those that write in place, have the same ones."""
_SPECIAL = (
    *("add", "and", "eq", "floordiv", "ge", "gt", "iadd", "iand", "idiv", "ifloordiv", "imul", "invert", "ior", "ipow"),
    *("isub", "itruediv", "le", "lt", "mod", "mul", "ne", "neg", "or", "pos", "pow", "radd", "rand", "rfloordiv"),
    *("rmod", "rmul", "ror", "rpow", "rsub", "rtruediv", "sub", "truediv", "xor", "rxor", "rdiv", "div", "abs"),
)


def _functions() -> Iterator[Callable[..., Any]]:
    """Yield the functions that have these names."""
    names = [*_NAMES, *(f"{name}_" for name in _NAMES), *(f"__{name}__" for name in _SPECIAL)]
    for place in (torch, Tensor, functional):
        yield from (getattr(place, name) for name in names if callable(getattr(place, name, None)))
    yield from (getattr(Tensor, name).__get__ for name in ("real", "imag", "data"))


FUNCTIONS: frozenset[Any] = frozenset(_functions())
"""Functions of torch, methods of tensors and functions of torch.nn that treat every element by itself."""


@dataclass(frozen=True, slots=True)
class Pointwise:
    """The call itself, on blocks and on this rank's part of tensors that every rank has whole."""

    parts: tuple[tuple[int, Sharding], ...]
    """Arguments, by their place among all, that are whole, and the cut of which the part is taken."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:
        """Call it; see Action."""
        if self.parts:
            cuts, places = dict(self.parts), count()

            def own(leaf: Any) -> Any:
                cut = cuts.get(next(places))
                return leaf if cut is None else cut.block(leaf, here.coords)

            args, kwargs = mapped((args, kwargs), own)
        return function(*args, **kwargs)


def pointwise(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a function of every element does: all meet in the cut of the first value that has one; see Rule."""
    (made,) = call.made or (None,)
    if made is None:
        raise NoRule("it gives no tensor")
    result = _met(made.shape, cuts)
    arguments = list(leaves((call.args, dict(call.kwargs))))
    parts = tuple(
        (place, cut)
        for place, leaf in enumerate(arguments)
        if isinstance(leaf, Given) and not (cut := under(result, leaf.shape)).is_whole
    )
    inputs = tuple(under(result, value.shape) for value in call.taken)
    if made in call.taken and inputs[call.taken.index(made)] != cuts[call.taken.index(made)]:
        raise NoRule("it writes into a tensor that is cut otherwise than what it writes")
    return Ruling(inputs, (result,), Pointwise(parts))


def _met(shape: tuple[int, ...], cuts: tuple[Sharding, ...]) -> Sharding:
    """Return the cut of what values of these cuts make together: per dimension that of the first that has one."""
    dims: list[Dim] = list(Sharding.whole(shape).dims)
    used: set[int] = set()
    for cut in cuts:
        offset = len(shape) - len(cut.dims)
        for number, dim in enumerate(cut.dims, start=offset):
            axes = {factor.axis for factor in dim if factor.axis is not None}
            is_open = not any(factor.axis is not None for factor in dims[number])
            if axes and is_open and not axes & used and cut.shape[number - offset] == shape[number]:
                dims[number] = dim
                used |= axes
    return Sharding(tuple(dims))


def under(result: Sharding, shape: tuple[int, ...]) -> Sharding:
    """Return the cut that a tensor of this shape must have to meet, by broadcasting, what is cut as `result` is."""
    offset = len(result.dims) - len(shape)
    whole = Sharding.whole(shape)
    return Sharding(
        tuple(
            result.dims[number + offset] if extent == result.shape[number + offset] else whole.dims[number]
            for number, extent in enumerate(shape)
        )
    )
