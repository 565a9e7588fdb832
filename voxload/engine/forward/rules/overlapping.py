"""Convolutions of a volume that begin with their own block while halos travel, as `voxload.engine.overlap` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

import torch
from torch import Tensor

from voxload.engine.form import Tile
from voxload.engine.forward.rules.sliding import Slide
from voxload.engine.forward.ruling import Here
from voxload.engine.overlap import Layout, joined, layout_of
from voxload.engine.window import Window

_FIRST = 2
_AXES = 3


def begun(x: Tensor, given: Mapping[str, Any], slides: Sequence[Slide], here: Here) -> Tensor | None:
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
    device = x.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    return joined(x, weight, bias, layout=layout, chooser=here.chooser, exchange=here.exchange)


def _layout(x: Tensor, given: Mapping[str, Any], slides: Sequence[Slide], here: Here) -> Layout | None:
    """Return what is computed without padding the block; None where only padding does it."""
    if len(slides) != _AXES or any(
        each.outer or (each.plan is not None and each.plan.axis != each.dim - _FIRST) for each in slides
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


def _span(each: Slide, x: Tensor, here: Here) -> tuple[int, int]:
    """Return the first position of this rank's block along a dimension, and the one behind its last."""
    if each.plan is None:
        return 0, int(x.shape[each.dim])
    place = here.coords[each.plan.axis]
    return each.plan.bounds[place], each.plan.bounds[place + 1]
