"""PieceUnits: pieces of stored volumes as units, of which turned, moved, cropped and unequal samples are made.

A stored volume, or a time step of it, is a source. Where samples are augmented, or patches that overlap, a source is
parted into pieces of whole chunks, and any sample is pasted from those that it touches. Where they are not, a source is
kept as the one block that this rank has of it, so that a step is kept once, whatever windows overlap it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod

import numpy as np

from voxload.augment import Placement
from voxload.data.dataset import VolumeDataset
from voxload.data.layout import FieldLayout
from voxload.data.lists.samples import Sample
from voxload.data.lists.selection import number_of
from voxload.data.units.unit import Generations, Unit
from voxload.geometry import Box, pieces
from voxload.loader.batch import unequal_blocks
from voxload.loader.caching.pieces import PieceGrid, most_touched, piece_shape
from voxload.prefetch.line import Ints
from voxload.readers.generation import block_generation
from voxload.readers.protocol import Lead, Location, ReadCost, Volume, Window
from voxload.readers.requests import block_cost, read_block

_UNITS = 2**14
"""Units whose description is remembered: to make it takes longer than to paste a small piece."""
_OPENERS = 8
"""Files that are opened at once to learn their shapes, as many as when they are listed."""


@dataclass(frozen=True, slots=True)
class Source:
    """A stored volume of some fields."""

    fields: tuple[int, ...]
    """Numbers of the fields."""
    locations: tuple[Location, ...]
    """Their volumes, of one shape."""


@dataclass(frozen=True, slots=True)
class Share:
    """What an item takes of a unit."""

    unit: int
    step: int
    """Its place among the item's time steps; 0 where it has none."""
    source: Box
    """In the unit."""
    target: Box
    """In the item as it lies before it is turned."""


@dataclass(frozen=True, slots=True)
class ItemPlan:
    """How one item of an epoch is pasted."""

    layout: tuple[FieldLayout, ...]
    """Of the item."""
    placement: Placement
    """Where it lies in the stored sample."""
    shares: dict[int, list[Share]]
    """What it is pasted from, by unit."""
    is_padded: bool
    """Whether a part of it is of no unit, but zero."""
    spare: int
    """A unit of its sample, for an item that takes none."""
    cost: ReadCost
    """What it took to find out."""

    @property
    def units(self) -> dict[int, None]:
        """The units that are brought for it, in order: one at least, for a step that waits for nothing never comes."""
        return dict.fromkeys(self.shares) or {self.spare: None}


class PieceUnits:
    """The pieces of all sources of a data set; see Units. `plan` says how an item is made of them.

    Parameters
    ----------
    data
        The data set; files whose shapes are not known are opened.

    Raises
    ------
    DataError, StorageError
        What opening a file raises.
    """

    def __init__(self, data: VolumeDataset) -> None:
        self.data = data
        self._first = data.layout(0)
        patches = data.parts.patches
        self._is_pasted = data.augment is not None or (patches is not None and patches.overlaps)
        numbers: dict[Source, int] = {}
        self._sources_of: list[tuple[int, ...]] = []
        windows: set[tuple[int, Window | None]] = set()
        for index in range(len(data)):
            found, window = _sources(data.samples.sample(index), is_pasted=self._is_pasted)
            self._sources_of.append(tuple(numbers.setdefault(source, len(numbers)) for source in found))
            windows.add((self._sources_of[-1][0], window))
        self._sources = list(numbers)
        self._channels = self._channels_of(data.samples.sample(0))
        self._extents = self._looked_at()
        # Of all items: the extents of what it is cut from, and of the source.
        self._shapes = {
            (window.shape if window else self._extents[source], self._extents[source]) for source, window in windows
        }
        self._grids = {extents: self._grid(extents) for extents in dict.fromkeys(self._extents)}
        counts = [self._grids[extents].count for extents in self._extents]
        self._ends = list(accumulate(counts))
        self.count = self._ends[-1]
        self._units: dict[int, Unit] = {}

    def unit(self, number: int) -> Unit:
        """See Units."""
        found = self._units.get(number)
        if found is None:
            if len(self._units) >= _UNITS:
                self._units.clear()
            found = self._units[number] = self._described(number)
        return found

    def _described(self, number: int) -> Unit:
        at, piece = self._place(number)
        source, names = self._sources[at], self.data.field_names
        box = self._grids[self._extents[at]].box(piece) if self._is_pasted else self.data.box(self._extents[at])
        fields = tuple(names[field] for field in source.fields)
        return Unit(
            str(source.locations[0]),
            fields,
            source.locations,
            box,
            self._layout(source.fields, box.shape),
            boundary=self.data.boundary,
            missing=self.data.missing,
        )

    def kinds(self) -> tuple[Ints, list[tuple[FieldLayout, ...]]]:
        """See Units."""
        known: dict[tuple[FieldLayout, ...], int] = {}
        found: dict[tuple[tuple[int, ...], tuple[int, ...]], Ints] = {}
        kinds = [(source.fields, extents) for source, extents in zip(self._sources, self._extents, strict=True)]
        for fields, extents in dict.fromkeys(kinds):
            sizes, places = np.unique(self._voxels(extents), return_inverse=True)
            # What a unit takes of a tier follows from its bytes, however they lie.
            layouts = [self._layout(fields, (1, 1, int(size))) for size in sizes]
            numbers = np.array([known.setdefault(layout, len(known)) for layout in layouts], np.int64)
            found[fields, extents] = numbers[places]
        return np.concatenate([found[kind] for kind in kinds]), list(known)

    def files(self) -> Ints:
        """Return a number for each unit's file: equal ones mean the same."""
        known: dict[str, int] = {}
        numbers = [known.setdefault(source.locations[0].path, len(known)) for source in self._sources]
        return np.repeat(np.array(numbers, np.int64), np.diff([0, *self._ends]))

    def read_into(self, number: int, out: Sequence[Volume]) -> ReadCost:
        """See Units; raises DataError where a volume is of another type, or has other channels, than the first."""
        return self._read(number, self.unit(number).box, out)

    def read_part(self, number: int, part: Box) -> tuple[list[Volume], ReadCost]:
        """Read a box of a unit into arrays of its own, one a field; raises as `read_into` does."""
        unit = self.unit(number)
        out: list[Volume] = [np.empty((one.shape[0], *part.shape), one.dtype) for one in unit.layout]
        return out, self._read(number, part.shift(unit.box.start), out)

    def _read(self, number: int, box: Box, out: Sequence[Volume]) -> ReadCost:
        unit, total = self.unit(number), ReadCost()
        with self.data.volumes.opened(_as_sample(unit)) as readers:
            layout = self.data.volumes.layouts([reader.describe() for reader in readers], [unit.box] * len(readers))
            if layout != unit.layout:
                raise unequal_blocks(unit.sample, layout, unit.layout)
            for reader, volume in zip(readers, out, strict=True):
                read_block(reader, box, volume, boundary=self.data.boundary)
                total += block_cost(reader, box, boundary=self.data.boundary)
        return total

    def generations(self, number: int) -> Generations:
        """See Units."""
        unit, boundary = self.unit(number), self.data.boundary
        with self.data.volumes.opened(_as_sample(unit)) as readers:
            return tuple(block_generation(reader, unit.box, boundary=boundary) for reader in readers)

    def fields_of(self, number: int) -> tuple[int, ...]:
        """Return the numbers of a unit's fields."""
        return self._sources[self._place(number)[0]].fields

    def channels_of_step(self, field: int) -> int:
        """Return how many channels a field has in one time step."""
        return self._channels[field]

    @property
    def has_steps(self) -> tuple[bool, ...]:
        """Whether each field has a place for each of an item's time steps."""
        return tuple(one.shape[0] > channels for one, channels in zip(self._first, self._channels, strict=True))

    def plan(self, index: int, number: int, repeat: int) -> ItemPlan:
        """Return how a sample of an epoch is made; raises what placing it raises."""
        data, sources = self.data, self._sources_of[index]
        sample = data.samples.sample(index)
        extents, window = self._extents[sources[0]], _shared_window(sample) if self._is_pasted else None
        spatial, offset = (extents, (0, 0, 0)) if window is None else (window.shape, window.start)
        placement, cost = data.cutter.place(
            sample, number_of(data.samples, index), epoch=number, repeat=repeat, spatial=spatial
        )
        wanted = data.box(placement.extents)
        layout = tuple(replace(one, shape=(one.shape[0], *wanted.shape)) for one in self._first)
        box = placement.source(wanted)
        cuts = list(self._cuts(extents, box, spatial, offset))
        shares: dict[int, list[Share]] = {}
        for step, source in enumerate(sources):
            for piece, inside, target in cuts:
                unit = self._begin(source) + piece
                shares.setdefault(unit, []).append(Share(unit, step, inside, target))
        is_padded = sum(target.size for _, _, target in cuts) < box.size
        return ItemPlan(layout, placement, shares, is_padded, self._begin(sources[0]), cost)

    @property
    def is_even(self) -> bool:
        """Whether all items are of one shape."""
        return len({self._item_layout(spatial) for spatial, _ in self._shapes}) == 1

    def largest(self) -> int:
        """Return the most bytes that an item takes."""
        return max(sum(one.nbytes for one in self._item_layout(spatial)) for spatial, _ in self._shapes)

    def scratch(self, align: int) -> int:
        """Return the most bytes that the units of one item take which are not brought to their place in it."""
        if not self._is_pasted:
            return 0
        most, sources = 0, {self._sources[number].fields: None for number in self._sources_of[0]}
        for spatial, extents in self._shapes:
            block, grid = self._item_layout(spatial)[0].shape[1:], self._grids[extents]
            layouts = [self._layout(fields, grid.piece) for fields in sources]
            nbytes = max(sum(-(-one.nbytes // align) * align for one in layout) for layout in layouts)
            most = max(most, most_touched((max(block),) * len(block), grid) * nbytes)  # for it may be turned
        return most * max(map(len, self._sources_of))

    def _cuts(
        self, extents: tuple[int, int, int], box: Box, spatial: Sequence[int], offset: Sequence[int]
    ) -> Iterator[tuple[int, Box, Box]]:
        """Yield what of a box of a sample lies in which piece: its number, there, and in the box."""
        if not self._is_pasted:
            whole = Box.whole(box.shape)
            yield 0, whole, whole
            return
        grid = self._grids[extents]
        for part in pieces(box, spatial, self.data.boundary):
            inside = part.source.shift(offset)
            for number in grid.touched(inside):
                piece = grid.box(number)
                common = piece.intersect(inside)
                if common is not None:
                    target = common.relative_to(inside.start).shift(part.target.start)
                    yield number, common.relative_to(piece.start), target

    def _place(self, number: int) -> tuple[int, int]:
        """Return a unit's source, and its number there."""
        source = bisect_right(self._ends, number)
        return source, number - self._begin(source)

    def _begin(self, source: int) -> int:
        return self._ends[source - 1] if source else 0

    def _layout(self, fields: Sequence[int], shape: Sequence[int]) -> tuple[FieldLayout, ...]:
        return tuple(replace(self._first[field], shape=(self._channels[field], *shape)) for field in fields)

    def _item_layout(self, spatial: tuple[int, ...]) -> tuple[FieldLayout, ...]:
        augment = self.data.augment
        shape = self.data.box(augment.extents(spatial) if augment else spatial).shape
        return tuple(replace(one, shape=(one.shape[0], *shape)) for one in self._first)

    def _voxels(self, extents: tuple[int, int, int]) -> Ints:
        if self._is_pasted:
            return self._grids[extents].voxels()
        return np.array([self.data.box(extents).size], np.int64)

    def _channels_of(self, sample: Sample) -> tuple[int, ...]:
        steps = [len(one.lead.steps) if one.lead and one.lead.steps else 1 for one in sample.locations]
        return tuple(one.shape[0] // count for one, count in zip(self._first, steps, strict=True))

    def _looked_at(self) -> list[tuple[int, int, int]]:
        """Return the extents of every source; those of one stored volume are looked at once."""
        wanted = list(dict.fromkeys(_extent(source.locations[0]) for source in self._sources))
        with ThreadPoolExecutor(_OPENERS, "voxload-listing") as pool:
            known = dict(zip(wanted, pool.map(self.data.volumes.extents, wanted), strict=True))
        return [known[_extent(source.locations[0])] for source in self._sources]

    def _grid(self, extents: tuple[int, int, int]) -> PieceGrid:
        if not self._is_pasted:
            return PieceGrid(extents, extents)
        blocks = [self._item_layout(spatial)[0].shape[1:] for spatial, of in self._shapes if of == extents]
        voxel = sum(one.dtype.itemsize * channels for one, channels in zip(self._first, self._channels, strict=True))
        with self.data.volumes.opened(self.data.samples.sample(0)) as readers:
            chunks = [chunks for reader in readers if (chunks := reader.describe().chunks) is not None]
        chunk = max((one[1:] for one in chunks), key=prod, default=None)
        return PieceGrid(extents, piece_shape(extents, chunk, wanted=min(map(prod, blocks)), voxel=voxel))


def _extent(location: Location) -> Location:
    """Return the volume whose extents a source has: of any of its time steps, the same."""
    return replace(location, lead=None)


def _as_sample(unit: Unit) -> Sample:
    return Sample(unit.sample, unit.locations, None)


def _shared_window(sample: Sample) -> Window | None:
    """Return what part of its volumes a sample is, where it is the same one of all."""
    windows = {location.window for location in sample.locations}
    return windows.pop() if len(windows) == 1 else None


def _sources(sample: Sample, *, is_pasted: bool) -> tuple[list[Source], Window | None]:
    """Return the sources of a sample, of each time step in turn, then of fields without any; and its part of them."""
    window = _shared_window(sample) if is_pasted else None
    locations = sample.locations
    if window is not None:
        locations = tuple(replace(location, window=None) for location in locations)
    leads = {field: location.lead for field, location in enumerate(locations) if location.lead}
    series = {field: (lead.sample, lead.steps) for field, lead in leads.items() if lead.steps}
    found = []
    for step in range(max((len(steps) for _, steps in series.values()), default=0)):
        places = [replace(locations[f], lead=Lead(n, (steps[step],))) for f, (n, steps) in series.items()]
        found.append(Source(tuple(series), tuple(places)))
    rest = tuple(field for field in range(len(locations)) if field not in series)
    if rest:
        found.append(Source(rest, tuple(locations[field] for field in rest)))
    return found, window
