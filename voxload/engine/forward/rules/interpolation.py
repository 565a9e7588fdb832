"""Interpolation: every output's weights follow from its global position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.forward.recording import Call
from voxload.engine.forward.rule import Context, NoRule, Preferences, Ruling, bound
from voxload.engine.forward.rules.slide import Slide, fetched, slide
from voxload.engine.forward.sharding import Sharding
from voxload.engine.layers.upsample import Resize, Rounding, mixed

RESIZES: frozenset[Any] = frozenset([functional.interpolate])
_NAMES = ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
_MODES = {"nearest": "nearest", "nearest-exact": "nearest-exact"} | dict.fromkeys(
    ("linear", "bilinear", "trilinear"), "trilinear"
)
"""Modes of torch, by what they are along one axis."""


@dataclass(frozen=True, slots=True)
class Interpolate:
    """Interpolates axis by axis between the inputs that were fetched."""

    slides: tuple[Slide, ...]
    extents: tuple[int, ...]
    """Extents of the whole input, of the dimensions that are resized."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Fetch and interpolate; see Action."""
        x: Tensor = bound(_NAMES, args, kwargs)["input"]
        rounding = Rounding.of(x)
        x = fetched(x, self.slides, here)
        for each, extent in zip(self.slides, self.extents, strict=True):
            start, first, count = each.first(here.coords)
            if count == 0:
                x = x.narrow(each.dim, 0, 0)
                continue
            reach: Any = each.reach
            low, high, weight = reach.sources(first, first + count, extent, rounding)
            x = mixed(x, each.dim, (low - start, high - start), weight)
        return x


def resize(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
    """Return what an interpolation does; see Rule."""
    given = bound(_NAMES, call.args, call.kwargs)
    mode = _MODES.get(given["mode"] or "nearest")
    if mode is None or given["antialias"]:
        raise NoRule(f"mode={given['mode']!r}" + (" with antialias" if given["antialias"] else ""))
    cut, count = cuts[0].whole_along([0]), len(cuts[0].dims) - 2
    reaches = [
        Resize(
            mode,
            size=_at(given["size"], index, int),
            factor=_at(given["scale_factor"], index, float),
            align_corners=bool(given["align_corners"]),
            recompute=bool(given["recompute_scale_factor"]),
        )
        for index in range(count)
    ]
    slides = tuple(slide(cut, 2 + index, reach, wishes) for index, reach in enumerate(reaches))
    result = cut
    for each in slides:
        result = result.with_dim(each.dim, each.result)
    return Ruling((cut,), (result,), Interpolate(slides, cut.shape[2:]))


def _at(value: Any, index: int, kind: type) -> Any:
    """Return the setting of one dimension as a `kind` of number; None stays None."""
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        raise NoRule("its size is a tensor")
    return kind(value[index] if isinstance(value, tuple | list) else value)
