"""Indexing by slices, numbers, new axes and an ellipsis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from voxload.engine.forward.recording import Call
from voxload.engine.forward.rules.sliding import Slide, fetched, slide
from voxload.engine.forward.ruling import Here, NoRule, Ruling, Wishes
from voxload.engine.forward.sharding import Dim, Sharding
from voxload.engine.outside import Outside
from voxload.engine.plan import plan_axis
from voxload.engine.window import Window

INDEXING: frozenset[Any] = frozenset([Tensor.__getitem__])


@dataclass(frozen=True, slots=True)
class Index:
    """An index into what was fetched."""

    slides: tuple[Slide, ...]
    """Dimensions that are cut and of which a part is taken."""
    index: tuple[Any, ...]
    """What is taken of the rest, and of what was fetched."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:  # noqa: ARG002 - see Action
        """Fetch and index; see Action."""
        return fetched(args[0], self.slides, here)[self.index]


def index(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:
    """Return what an index does: slices move where they belong, a number's plane goes to every rank; see Rule."""
    cut = cuts[0]
    dims: list[Dim] = []
    slides: list[Slide] = []
    taken: list[Any] = []
    number = 0
    for one in expanded(call.args[1], len(cut.dims)):
        if one is None:
            dims.append(())
            taken.append(None)
            continue
        extent, is_cut = cut.shape[number], bool(cut.axes(number))
        places = range(extent)[one] if isinstance(one, slice) else range(one % extent, one % extent + 1)
        if isinstance(one, slice) and len(places) == extent and places.step == 1:
            dims.append(cut.dims[number])
            taken.append(slice(None))
        elif not is_cut:
            dims += Sharding.whole([len(places)]).dims if isinstance(one, slice) else []
            taken.append(one)
        else:
            found = _slide(cut, number, places, wishes)
            if not isinstance(one, slice):
                found = _everywhere(cut, number, places[0])
            slides.append(found)
            dims += [found.result] if isinstance(one, slice) else []
            taken.append(slice(None, None, places.step) if isinstance(one, slice) else 0)
        number += 1
    return Ruling((cut,), (Sharding(tuple(dims)),), Index(tuple(slides), tuple(taken)))


def _slide(cut: Sharding, number: int, places: range, wishes: Wishes) -> Slide:
    """Return what takes some places along a dimension, each to where the one lies that it is."""
    if places.step < 1 or not len(places):
        raise NoRule("it takes nothing of an axis that is cut")
    window = Window(1, stride=places.step, low=-places[0], high=places[-1] + 1 - cut.shape[number])
    return slide(cut, number, window, replace(wishes, min_width=0))


def _everywhere(cut: Sharding, number: int, place: int) -> Slide:
    """Return what brings one place along a dimension to every rank."""
    (factor,) = cut.dims[number]
    if factor.axis is None:
        raise NoRule("it takes one place of several axes that are one dimension")
    needs = ((place, place + 1),) * (len(factor.bounds) - 1)
    plan = plan_axis(factor.axis, factor.bounds, needs, Outside.CONSTANT)
    return Slide(number, Window(1), plan, ())


def expanded(given: Any, count: int) -> list[Any]:
    """Return an index with an entry for every dimension; raises NoRule for tensors and lists."""
    entries = list(given) if isinstance(given, tuple) else [given]
    if any(
        not (each is None or each is Ellipsis or isinstance(each, int | slice)) or isinstance(each, bool)
        for each in entries
    ):
        raise NoRule("it indexes by tensors or lists")
    named = sum(1 for each in entries if each is not None and each is not Ellipsis)
    fill = [slice(None)] * (count - named)
    if Ellipsis in entries:
        at = entries.index(Ellipsis)
        return [*entries[:at], *fill, *entries[at + 1 :]]
    return [*entries, *fill]
