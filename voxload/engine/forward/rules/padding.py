"""Padding, in every mode of torch, along any dimensions, and cropping by negative numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.arithmetic.axis_plan import PaddingMode
from voxload.engine.arithmetic.windows import Window
from voxload.engine.forward.recording import Call
from voxload.engine.forward.rule import Context, NoRule, Preferences, Ruling, bound
from voxload.engine.forward.rules.slide import Slide, fetched, slide
from voxload.engine.forward.sharding import Sharding

PADDINGS: frozenset[Any] = frozenset([functional.pad])
ROLLS: frozenset[Any] = frozenset([torch.roll, Tensor.roll])
_NAMES = ("input", "pad", "mode", "value")
_OUTSIDE: Mapping[str, PaddingMode] = {
    "constant": PaddingMode.CONSTANT,
    "reflect": PaddingMode.REFLECT,
    "replicate": PaddingMode.REPLICATE,
    "circular": PaddingMode.CIRCULAR,
}


@dataclass(frozen=True, slots=True)
class Pad:
    """Padding of a block: what lies outside of the whole is fetched like what lies outside of the block."""

    slides: tuple[Slide, ...]
    """Dimensions that are cut and padded."""
    pads: tuple[int, ...]
    """What torch pads by itself, from the last dimension to the first."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:
        """Fetch, and pad the rest; see Action."""
        given = bound(_NAMES, args, kwargs)
        x: Tensor = given["input"]
        fill = float(given["value"] or 0.0)
        x = fetched(x, self.slides, here, fill=fill)
        if not any(self.pads):
            return x
        # A rank that owns nothing has nothing to mirror, which torch refuses.
        if (given["mode"] or "constant") == "constant" or not x.numel():
            return function(x, self.pads, "constant", fill)
        return function(x, self.pads, given["mode"])


def pad(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
    """Return what padding does; see Rule."""
    given = bound(_NAMES, call.args, call.kwargs)
    outside = _OUTSIDE.get(given["mode"] or "constant")
    if outside is None:
        raise NoRule(f"mode={given['mode']!r}")
    cut, numbers = cuts[0], [int(each) for each in given["pad"]]
    result, slides, own = cut, [], list(numbers)
    for place in range(len(numbers) // 2):
        dim = len(cut.dims) - 1 - place
        low, high = numbers[2 * place], numbers[2 * place + 1]
        if not (low or high) or not cut.axes(dim):
            result = (
                result.with_dim(dim, Sharding.whole([cut.shape[dim] + low + high]).dims[0]) if low or high else result
            )
            continue
        limit = outside.reach(cut.shape[dim])
        if limit is not None and max(low, high) > limit:
            raise NoRule(f"it pads {max(low, high)} beyond {cut.shape[dim]} voxels")
        found = slide(cut, dim, Window(1, low=low, high=high), wishes, outside=outside)
        slides.append(found)
        result = result.with_dim(dim, found.result)
        own[2 * place : 2 * place + 2] = [0, 0]
    return Ruling((cut,), (result,), Pad(tuple(slides), tuple(own)))


@dataclass(frozen=True, slots=True)
class Roll:
    """A roll: along dimensions that are cut, voxels come from the rank that has what stands there."""

    slides: tuple[Slide, ...]
    """Dimensions that are cut."""
    own: tuple[tuple[int, int], ...]
    """Shift and dimension of the others."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Fetch, and roll the rest; see Action."""
        x = fetched(args[0], self.slides, here)
        return torch.roll(x, [shift for shift, _ in self.own], [dim for _, dim in self.own]) if self.own else x


def roll(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
    """Return what a roll does; see Rule."""
    given = bound(("input", "shifts", "dims"), call.args, call.kwargs)
    if given["dims"] is None or given["dims"] == ():
        raise NoRule("it rolls all dimensions as one")
    shifts, dims = (each if isinstance(each, tuple | list) else (each,) for each in (given["shifts"], given["dims"]))
    slides, own = [], []
    for shift, dim in zip(shifts, dims, strict=True):
        number = dim % len(cuts[0].dims)
        extent = cuts[0].shape[number]
        if not cuts[0].axes(number):
            own.append((int(shift), number))
            continue
        low = int(shift) % extent
        keep = replace(wishes, cut=cuts[0], min_width=0)
        slides.append(slide(cuts[0], number, Window(1, low=low, high=-low), keep, outside=PaddingMode.CIRCULAR))
    return Ruling((cuts[0],), (cuts[0],), Roll(tuple(slides), tuple(own)))
