"""DatasetBlocks: what a cache keeps of a data set, with the keys under which tiers keep it.

Rules of this file:

1. A key names the generation of what it stands for, so that data that were written anew have other keys.
2. What was read is kept only where it is sure to be of that generation: taken before the read, long enough after the
   last change for the next one to show, and found again after it.
3. A unit's keys stay what they were when they were first asked for, unless nothing could be kept under them yet.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from voxload.cache.codec import Codec
from voxload.cache.disk.tier import DiskTier
from voxload.cache.form import store_form
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.protocol import BlockKey
from voxload.errors import StorageError
from voxload.loader.caching.generations import BlockGenerations
from voxload.loader.caching.items import Items
from voxload.loader.caching.units import Generations, Units
from voxload.prefetch.execution.resources import StorageRead
from voxload.prefetch.line import Ints
from voxload.readers.protocol import Location, ReadCost, Volume

_SPREAD = 1.1
"""How much larger than those that are looked at other packed units are taken to be."""
_PROBES = 3
"""Units that are looked at: the first, which may be air, the last and one between."""
_PAUSES = (0.05, 0.5)
"""Seconds before a read that the storage refused is tried again: a server that fails over takes about as long."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What was learnt of a unit."""

    keys: tuple[BlockKey, ...]
    generations: Generations | None
    """What its blocks were stored as when the keys were made; None where the storage did not say."""

    @property
    def is_settled(self) -> bool:
        """Whether blocks may be kept under the keys."""
        return self.generations is not None and all(one is None or one.is_settled for one in self.generations)

    @property
    def lasts(self) -> bool:
        """Whether the next job can be sure of the keys."""
        return self.generations is not None and None not in self.generations


class DatasetBlocks:
    """One rank's units, and how its items are made of them, as the executor has them; see `resources.Blocks`.

    Safe to use from many threads at once.

    Parameters
    ----------
    units
        What is kept.
    items
        How slots are filled.
    outlives
        Whether units may be kept beyond the job.
    """

    def __init__(self, units: Units, items: Items, *, outlives: bool = False) -> None:
        self.units, self.items = units, items
        self.filling = items.filling
        self._stored = BlockGenerations(units, outlives=outlives)
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}
        self._has_told = False

    def shrinkage(self, codec: Codec) -> float:
        """Return what part of the bytes of arrays that a codec suits is stored, as a few units tell."""
        raw = stored = 0
        for number in sorted({place * (self.units.count - 1) // max(_PROBES - 1, 1) for place in range(_PROBES)}):
            layout = self.units.unit(number).layout
            if not any(codec.suits(one.dtype) for one in layout):
                continue
            volumes = [np.empty(one.shape, one.dtype) for one in layout]
            self._patiently(number, volumes)
            for volume in volumes:
                if codec.suits(volume.dtype):
                    raw, stored = raw + volume.nbytes, stored + store_form(volume, codec)[0].stored
        return stored / raw if raw else 1.0

    def footprints(self, codec: Codec, shrinkage: float) -> Ints:
        """Return the bytes that each unit takes of a tier: the most, or with a codec about as many.

        A plan that counts on too little is carried out as far as there is room; one that counts on the most would leave
        most of the room empty.
        """
        numbers, layouts = self.units.kinds()
        found = []
        for layout in layouts:
            parts = (_SPREAD * shrinkage if codec.suits(one.dtype) else 1.0 for one in layout)
            sizes = [min(one.nbytes, int(one.nbytes * part)) for one, part in zip(layout, parts, strict=True)]
            found.append(sum(max(MemoryTier.footprint(size), DiskTier.footprint(size)) for size in sizes))
        return np.array(found, np.int64)[numbers]

    def most_arrays(self, room: int) -> int:
        """Return about how many arrays of units so many bytes hold."""
        numbers, layouts = self.units.kinds()
        often = np.bincount(numbers, minlength=len(layouts)).tolist()
        arrays = sum(count * len(layout) for count, layout in zip(often, layouts, strict=True))
        nbytes = sum(count * sum(one.nbytes for one in layout) for count, layout in zip(often, layouts, strict=True))
        return int(min(arrays, room * arrays // max(nbytes, 1)))

    def nbytes(self, number: int) -> int:
        """Return the bytes of a unit's arrays."""
        return self.units.unit(number).nbytes

    def keys(self, number: int) -> tuple[BlockKey, ...]:
        """Return the key of each field's block; what is stored is looked at once, and read by nobody."""
        return self._of(number).keys

    def lasts(self, number: int) -> bool:
        """Tell whether the next job can be sure of the keys; where not, this says so, once."""
        is_sure = self._of(number).lasts
        if not is_sure:
            with self._lock:
                is_first, self._has_told = not self._has_told, True
            if is_first:
                place = self.units.unit(number).locations[0]
                warnings.warn(
                    f"{place}: its blocks are not kept on disk, for the next job could not tell "
                    "them from what may be written there until then; behind a URL that takes strong entity tags, "
                    "of at most 64 objects a block",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return is_sure

    def read(self, number: int, out: Sequence[Volume]) -> StorageRead:
        """Fill one array for each field from the storage; tried again, twice, where the storage refuses.

        Raises DataError when the blocks are not as expected, and what the readers raise.
        """
        known = self._of(number)
        if not known.is_settled:
            known = self._renewed(number, known)
        cost = self._patiently(number, out)
        is_sure = known.is_settled and _names(self._stored.now(number)) == _names(known.generations)
        return StorageRead(cost, is_sure)

    def _patiently(self, number: int, out: Sequence[Volume]) -> ReadCost:
        for pause in _PAUSES:
            try:
                return self.units.read_into(number, out)
            except StorageError:
                time.sleep(pause)
        return self.units.read_into(number, out)

    def _of(self, number: int) -> _Known:
        with self._lock:
            known = self._known.get(number)
        if known is None:
            known = self._looked(number)
            with self._lock:
                known = self._known.setdefault(number, known)
        return known

    def _renewed(self, number: int, known: _Known) -> _Known:
        """Look again at what had been written just before it was looked at first."""
        fresh = self._looked(number)
        with self._lock:
            if self._known[number].generations is known.generations:
                self._known[number] = replace(self._known[number], keys=fresh.keys, generations=fresh.generations)
            return self._known[number]

    def _looked(self, number: int) -> _Known:
        unit, data, generations = self.units.unit(number), self.units.data, self._stored.first(number)
        names = _names(generations) or ("",) * len(unit.fields)
        return _Known(
            tuple(
                BlockKey(f"{_identity(place)} {data.missing}\n{name}", unit.sample, field, unit.box, data.boundary)
                for field, place, name in zip(unit.fields, unit.locations, names, strict=True)
            ),
            generations,
        )


def _names(generations: Generations | None) -> tuple[str, ...] | None:
    return None if generations is None else tuple("" if one is None else one.name for one in generations)


def _identity(location: Location) -> str:
    """Return what tells a stored volume from all others, whatever is stored there."""
    parts = (
        location.path,
        location.dataset,
        location.axes,
        location.shape,
        location.dtype,
        location.window,
    )
    more = [repr(location.lead)] if location.lead is not None else []
    return "\n".join((*map(str, parts), *more, *map(_identity, location.also)))
