"""Functions whose outputs read windows of their input: convolutions and poolings of one to three dimensions.

Each rank fetches what its outputs read, dimension by dimension, and calls the function itself without padding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.arithmetic.layer_plan import Tile
from voxload.engine.arithmetic.windows import Spread, Window, counted
from voxload.engine.forward.recording import Call
from voxload.engine.forward.rule import Context, LayerSplit, NoRule, Preferences, Ruling, bound
from voxload.engine.forward.rules.features import LayerWeights, taken, weighted
from voxload.engine.forward.rules.slide import Slide, fetched, slide
from voxload.engine.forward.sharding import Factor, Sharding
from voxload.engine.run.overlap import Layout, joined, layout_of
from voxload.engine.run.tensors import autocast_type, sent

_LEADING = 2
_AXES = 3


def begun(x: Tensor, given: Mapping[str, Any], slides: Sequence[Slide], here: Context) -> Tensor | None:
    """Return this rank's outputs of a convolution; None where its block is to be padded before.

    A compiler orders messages and computing by itself, and messages that are a part of the graph are no messages.

    Parameters
    ----------
    x
        This rank's block.
    given
        What else the convolution takes, by name.
    slides
        What its windows do, dimension by dimension.
    here
        Where it is carried out.
    """
    if not here.chooser.may_join or torch.compiler.is_compiling() or here.exchange.carries_graph:
        return None
    layout = here.remembered((id(slides), tuple(x.shape)), lambda: _layout(x, given, slides, here))
    if layout is None:
        return None
    weight, bias = given["weight"], given.get("bias")
    if (dtype := autocast_type(x.device.type)) is not None:
        weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    return joined(x, weight, bias, layout=layout, chooser=here.chooser, exchange=here.exchange)


def _layout(x: Tensor, given: Mapping[str, Any], slides: Sequence[Slide], here: Context) -> Layout | None:
    """Return what is computed without padding the block; None where only padding does it."""
    if len(slides) != _AXES or any(
        each.outer or (each.plan is not None and each.plan.axis != each.dim - _LEADING) for each in slides
    ):
        return None
    fetches = [(each.dim, each.plan) for each in slides if each.plan is not None and not each.plan.idle]
    spans = [_span(each, x, here) for each in slides]
    firsts = [each.first(here.coords) for each in slides]
    tile = Tile(
        parts=tuple(here.part(plan, dim) for dim, plan in fetches),
        origin=tuple(start for start, _ in spans),
        end=tuple(stop for _, stop in spans),
        start=tuple(first for first, *_ in firsts),
        first=tuple(first for _, first, _ in firsts),
        extents=tuple(count for *_, count in firsts),
        shape=tuple(x.shape[each.dim] if each.plan is None else each.plan.bounds[-1] for each in slides),
        result=tuple(prod(factor.extent for factor in each.result) for each in slides),
    )
    windows = tuple(cast("Window", each.reach) for each in slides)
    return layout_of(tile, windows, given["padding"], given.get("groups") or 1)


def _span(each: Slide, x: Tensor, here: Context) -> tuple[int, int]:
    """Return the first position of this rank's block along a dimension, and the one behind its last."""
    if each.plan is None:
        return 0, int(x.shape[each.dim])
    place = here.coords[each.plan.axis]
    return each.plan.bounds[place], each.plan.bounds[place + 1]


_FIRST = 2
"""First dimension that windows slide along, of (B, C, ...)."""
CONVOLUTIONS: Mapping[Any, int] = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}
"""By the number of dimensions that windows slide along."""
TRANSPOSED: Mapping[Any, int] = {torch.conv_transpose1d: 1, torch.conv_transpose2d: 2, torch.conv_transpose3d: 3}
MAXIMA: Mapping[Any, int] = {functional.max_pool1d: 1, functional.max_pool2d: 2, functional.max_pool3d: 3}
MEANS: Mapping[Any, int] = {functional.avg_pool1d: 1, functional.avg_pool2d: 2, functional.avg_pool3d: 3}
_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_MAXIMUM = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_MEAN = ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")


@dataclass(frozen=True, slots=True)
class Windowed:
    """A function of windows of what was fetched."""

    names: tuple[str, ...]
    """Names of its arguments, in order."""
    slides: tuple[Slide, ...]
    settings: tuple[tuple[str, Any], ...]
    """Arguments that it gets in place of the call's own."""
    fill: float = 0.0
    """Value outside the volume."""
    casts: bool = False
    """Whether it casts its input under autocast: then this is done before anything is sent."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:
        """Fetch, call and crop; see Action."""
        given = dict(zip(self.names, args, strict=False)) | kwargs | dict(self.settings)
        x: Tensor = given.pop("input")
        if self.casts and (dtype := autocast_type(x.device.type)) is not None:
            x = x.to(dtype)
        if function is torch.conv3d and (found := begun(x, given, self.slides, here)) is not None:
            return found
        x = fetched(x, self.slides, here, fill=self.fill)
        if any(each.outer for each in self.slides):
            pads = (each.padding(here.coords)[0] for each in self.slides)
            given["padding"] = tuple(map(max, given["padding"], pads))
        y: Tensor = function(self._stretched(x, here), **given)
        for each in self.slides:
            y = self._cropped(y, each, here)
        return y

    def _stretched(self, x: Tensor, here: Context) -> Tensor:
        """Return inputs that make an output: ranks that own none must stay part of the graph, as their peers wait."""
        pads: list[int] = []
        for each in reversed(self.slides):
            is_empty = each.first(here.coords)[2] == 0
            span = each.reach.span if isinstance(each.reach, Window) else 1
            pads += [0, span if is_empty else 0]
        return functional.pad(x, pads) if any(pads) else x

    def _cropped(self, y: Tensor, each: Slide, here: Context) -> Tensor:
        """Return the outputs that this rank owns along a dimension."""
        start, first, count = each.first(here.coords)
        if count == 0:
            return y.narrow(each.dim, 0, 0)
        if each.outer:
            return y.narrow(each.dim, each.padding(here.coords)[1], count)
        if each.plan is None or not isinstance(each.reach, Spread):
            return y
        return y.narrow(each.dim, first - (each.reach.stride * start - each.reach.padding), count)


def convolution(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
    """Return what a convolution does; see Rule."""
    given, count = bound(_CONVOLUTION, call.args, call.kwargs), CONVOLUTIONS[call.function]
    weight = given["weight"].shape
    like = LayerWeights(_CONVOLUTION, weight, spatial=count, groups=given["groups"])
    cut = _volume(cuts, count, wishes.split, like)
    windows = []
    for index in range(count):
        dilation = _at(given["dilation"], index)
        low, high = _padding(given["padding"], index, dilation * (weight[_FIRST + index] - 1))
        windows.append(Window(weight[_FIRST + index], _at(given["stride"] or 1, index), dilation, low, high))
    slides = tuple(slide(cut, _FIRST + index, window, wishes, pads=True) for index, window in enumerate(windows))
    if any(each.plan is None and window.low != window.high for each, window in zip(slides, windows, strict=True)):
        raise NoRule("it pads an axis that is whole by different numbers")
    padding = tuple(0 if each.plan else window.low for each, window in zip(slides, windows, strict=True))
    action = Windowed(_CONVOLUTION, slides, (("padding", padding),), casts=True)
    return _weighted(_ruled(call, cut, weight[0], slides, action), wishes.split, like)


def transposed(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
    """Return what a transposed convolution does; see Rule."""
    given, count = bound(_TRANSPOSED, call.args, call.kwargs), TRANSPOSED[call.function]
    weight = given["weight"].shape
    like = LayerWeights(_TRANSPOSED, weight, spatial=count, groups=given["groups"], is_transposed=True)
    cut = _volume(cuts, count, wishes.split, like)
    reaches = [
        Spread(
            weight[_FIRST + index],
            _at(given["stride"] or 1, index),
            _at(given["dilation"], index),
            _at(given["padding"], index),
            _at(given["output_padding"], index),
        )
        for index in range(count)
    ]
    slides = tuple(slide(cut, _FIRST + index, reach, wishes) for index, reach in enumerate(reaches))
    pairs = list(zip(slides, reaches, strict=True))
    settings = (
        ("padding", tuple(0 if each.plan else reach.padding for each, reach in pairs)),
        ("output_padding", tuple(0 if each.plan else reach.extra for each, reach in pairs)),
    )
    action = Windowed(_TRANSPOSED, slides, settings, casts=True)
    return _weighted(_ruled(call, cut, weight[1] * given["groups"], slides, action), wishes.split, like)


def maximum(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
    """Return what a maximum over windows does; windows hold the same values, so ties are broken alike; see Rule."""
    given, count = bound(_MAXIMUM, call.args, call.kwargs), MAXIMA[call.function]
    if given["return_indices"]:
        raise NoRule("it returns indices into the whole volume")
    return _pooled(call, cuts, wishes, (given, count, -inf))


def mean(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
    """Return what a mean over windows does; see Rule."""
    given, count = bound(_MEAN, call.args, call.kwargs), MEANS[call.function]
    is_padded = any(_at(given["padding"], index) for index in range(count))
    varies = (given["ceil_mode"] or (is_padded and not given["count_include_pad"])) and not given["divisor_override"]
    if varies and count == 1:
        raise NoRule("its windows count different numbers of positions")
    ruling = _pooled(call, cuts, wishes, ({"dilation": 1} | given, count, 0.0))
    if not varies or not isinstance(ruling.action, Windowed):
        return ruling
    settings = (*ruling.action.settings, ("divisor_override", 1))
    extents = cuts[0].shape[_FIRST:]
    sums = replace(ruling.action, settings=settings)
    return replace(ruling, action=Averaged(sums, extents, bool(given["count_include_pad"])))


@dataclass(frozen=True, slots=True)
class Averaged:
    """Means over windows at the border that count fewer voxels than others: sums, divided by what is counted."""

    sums: Windowed
    extents: tuple[int, ...]
    """Of the whole."""
    counts_padding: bool
    """Whether padded voxels count."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:
        """Sum and divide; see Action."""
        y: Tensor = self.sums.run(function, args, kwargs, here)
        for each, extent in zip(self.sums.slides, self.extents, strict=True):
            _, first, count = each.first(here.coords)
            counts = [
                counted(each.reach, output, extent, padding=self.counts_padding)  # type: ignore[arg-type] # a window
                for output in range(first, first + count)
            ]
            divisors = sent(torch.tensor(counts, dtype=y.dtype), y.device)
            y = y / divisors.view(-1, *(1,) * (y.ndim - 1 - each.dim))
        return y


def _pooled(
    call: Call, cuts: tuple[Sharding, ...], wishes: Preferences, how: tuple[Mapping[str, Any], int, float]
) -> Ruling:
    """Return the ruling of a pooling."""
    given, count, fill = how
    _require_batch(cuts[0], count)
    cut = cuts[0]
    windows = [
        Window(
            _at(given["kernel_size"], index),
            _at(given["stride"] or given["kernel_size"], index),
            _at(given["dilation"], index),
            _at(given["padding"], index),
            _at(given["padding"], index),
            ceil=bool(given["ceil_mode"]),
        )
        for index in range(count)
    ]
    slides = tuple(slide(cut, _FIRST + index, window, wishes) for index, window in enumerate(windows))
    padding = tuple(0 if each.plan else window.low for each, window in zip(slides, windows, strict=True))
    names = _MAXIMUM if "return_indices" in given else _MEAN
    settings = (("padding", padding), ("stride", tuple(window.stride for window in windows)))
    return _ruled(call, cut, None, slides, Windowed(names, slides, settings, fill))


def _require_batch(cut: Sharding, count: int) -> None:
    if len(cut.dims) != _FIRST + count:
        raise NoRule("it takes one sample without a batch")


def _volume(cuts: tuple[Sharding, ...], count: int, split: LayerSplit | None, like: LayerWeights) -> Sharding:
    """Return the cut in which a layer with weights takes its input: its channels are whole, unless a plan says more."""
    _require_batch(cuts[0], count)
    return cuts[0].whole_along([1]) if split is None else taken(cuts[0], split, like)


def _weighted(ruling: Ruling, split: LayerSplit | None, like: LayerWeights) -> Ruling:
    """Return the ruling of a layer whose weights are cut, where a plan says so."""
    if split is None or split.is_in_space:
        return ruling
    if len(ruling.inputs) > 1:
        raise NoRule("its weights depend on the volume")
    action, result = weighted(ruling.action, split, like, source=ruling.inputs[0], result=ruling.results[0])
    return Ruling(ruling.inputs, (result,), action)


def _ruled(call: Call, cut: Sharding, channels: int | None, slides: tuple[Slide, ...], action: Windowed) -> Ruling:
    """Return the ruling; computed weights are taken whole. Without a number of channels they are those of the input."""
    result = cut if channels is None else cut.with_dim(1, [Factor(channels)])
    for each in slides:
        result = result.with_dim(each.dim, each.result)
    return Ruling((cut, *(Sharding.whole(value.shape) for value in call.taken[1:])), (result,), action)


def _at(value: Any, index: int) -> int:
    """Return a setting of one dimension: torch takes one number for all, or one each."""
    if isinstance(value, int):
        return value
    return int(value[index] if len(value) > 1 else value[0])


def _padding(value: Any, index: int, total: int) -> tuple[int, int]:
    """Return the voxels padded before and after along a dimension."""
    if value == "valid":
        return 0, 0
    if value == "same":
        return total // 2, total - total // 2
    return _at(value, index), _at(value, index)
