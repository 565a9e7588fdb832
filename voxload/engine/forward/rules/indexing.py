"""Indexing by slices, numbers, new axes and an ellipsis, to read or to write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from voxload.engine.arithmetic.axis_plan import PaddingMode, plan_axis
from voxload.engine.arithmetic.windows import Window
from voxload.engine.forward.recording import Call, Given, Value
from voxload.engine.forward.rule import Context, NoRule, Preferences, Ruling
from voxload.engine.forward.rules.pointwise import under
from voxload.engine.forward.rules.slide import Slide, fetched, slide
from voxload.engine.forward.sharding import Dim, Factor, Sharding, dim_of

INDEXING: frozenset[Any] = frozenset([Tensor.__getitem__])


@dataclass(frozen=True, slots=True)
class Index:
    """An index into what was fetched."""

    slides: tuple[Slide, ...]
    """Dimensions that are cut and of which a part is taken."""
    index: tuple[Any, ...]
    """What is taken of the rest, and of what was fetched."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Fetch and index; see Action."""
        return fetched(args[0], self.slides, here)[self.index]


def index(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
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


def _slide(cut: Sharding, number: int, places: range, wishes: Preferences) -> Slide:
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
    plan = plan_axis(factor.axis, factor.bounds, needs, PaddingMode.CONSTANT)
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


STORES: frozenset[Any] = frozenset([Tensor.__setitem__])


@dataclass(frozen=True, slots=True)
class Entry:
    """What is written to along one dimension that is cut."""

    place: int
    """Of the entry in the index."""
    factor: Factor
    """The cut of the dimension."""
    positions: range
    """Global positions."""
    behind: int | None
    """Of a number: how many dimensions of what is written come behind it, which has none for it."""

    def here(self, coords: tuple[int, ...]) -> slice:
        """Return what of this rank's block is written to."""
        start, stop = self.factor.span(coords)
        first, last = _count(self.positions, start), _count(self.positions, stop)
        if first == last:
            return slice(0, 0)
        return slice(self.positions[first] - start, self.positions[last - 1] - start + 1, self.positions.step)


@dataclass(frozen=True, slots=True)
class Store:
    """A write into the part that lies in the block."""

    index: tuple[Any, ...]
    """The index, with an entry for every dimension."""
    entries: tuple[Entry, ...]
    """Those of dimensions that are cut and written to in part."""
    part: Sharding | None
    """Cut of which this rank takes its part of what is written, where every rank has that whole."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Write; see Action. Ranks that have nothing of it write nothing, and stay part of the graph."""
        value = args[2] if self.part is None else self.part.block(args[2], here.coords)
        index = list(self.index)
        for each in self.entries:
            index[each.place] = each.here(here.coords)
            if each.behind is not None and isinstance(value, Tensor) and value.ndim >= each.behind:
                value = value.unsqueeze(value.ndim - each.behind)
        args[0][tuple(index)] = value


def store(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a write by slices and numbers does; see Rule."""
    if len(call.args) != 3 or not isinstance(call.args[0], Value):
        raise NoRule("it writes into a tensor that every rank has whole")
    cut, value = cuts[0], call.args[2]
    if isinstance(value, Value) and value.storage == call.args[0].storage:
        raise NoRule("it writes a view of the volume into the volume")
    index = tuple(expanded(call.args[1], len(cut.dims)))
    target, entries = _written(cut, index)
    if not isinstance(value, Value | Given):
        return Ruling((cut,), (), Store(index, entries, None))
    if len(value.shape) > len(target.dims):
        raise NoRule("what is written has more dimensions than what it is written to")
    wanted = under(target, value.shape)
    if isinstance(value, Given):
        return Ruling((cut,), (), Store(index, entries, None if wanted.is_whole else wanted))
    return Ruling((cut, wanted), (), Store(index, entries, None))


def _written(cut: Sharding, index: tuple[Any, ...]) -> tuple[Sharding, tuple[Entry, ...]]:
    """Return the cut of what an index names, and its entries for dimensions of which it names a part that is cut."""
    dims: list[Dim] = []
    found: list[tuple[int, Factor, range, int | None]] = []
    numbers = iter(range(len(cut.dims)))
    for place, one in enumerate(index):
        if one is None:
            dims.append(())
            continue
        number = next(numbers)
        extent, is_slice = cut.shape[number], isinstance(one, slice)
        places = range(extent)[one] if is_slice else range(one % extent, one % extent + 1)
        if is_slice and len(places) == extent and places.step == 1:
            dims.append(cut.dims[number])
            continue
        own = Factor(len(places))
        if cut.axes(number):
            factor = _only(cut.dims[number])
            found.append((place, factor, places, None if is_slice else len(dims)))
            own = Factor(len(places), factor.axis, tuple(_count(places, bound) for bound in factor.bounds))
        dims += [dim_of([own])] if is_slice else []
    entries = (Entry(place, factor, ones, None if at is None else len(dims) - at) for place, factor, ones, at in found)
    return Sharding(tuple(dims)), tuple(entries)


def _only(dim: Dim) -> Factor:
    """Return the factor of a dimension that has one."""
    if len(dim) != 1:
        raise NoRule("it writes into a part of several axes that are one dimension")
    return dim[0]


def _count(positions: range, bound: int) -> int:
    """Return how many of `positions`, which rise, come before a bound."""
    if positions.step < 1:
        raise NoRule("it writes in falling order")
    return min(max(-(-(bound - positions.start) // positions.step), 0), len(positions))
