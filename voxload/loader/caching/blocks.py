"""DatasetBlocks: what a cache keeps of a data set, with the keys under which tiers keep it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from voxload.cache.codec import Codec
from voxload.cache.disk.tier import DiskTier
from voxload.cache.form import store_form
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.protocol import BlockKey
from voxload.data.units.keyed import KeyedUnits
from voxload.loader.caching.items import Items
from voxload.loader.caching.units import Units
from voxload.prefetch.execution.resources import StorageRead
from voxload.prefetch.line import Ints
from voxload.readers.protocol import Volume

_SPREAD = 1.1
"""How much larger than those that are looked at other packed units are taken to be."""
_PROBES = 3
"""Units that are looked at: the first, which may be air, the last and one between."""


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
        self._keyed = KeyedUnits(units, outlives=outlives)

    def adopt(self, other: DatasetBlocks) -> Ints:
        """Take over the keys that were learnt of fewer units; return the numbers of those units."""
        return np.array(self._keyed.adopt(other._keyed), np.int64)

    def shrinkage(self, codec: Codec) -> float:
        """Return what part of the bytes of arrays that a codec suits is stored, as a few units tell."""
        raw = stored = 0
        for number in sorted({place * (self.units.count - 1) // max(_PROBES - 1, 1) for place in range(_PROBES)}):
            layout = self.units.unit(number).layout
            if not any(codec.suits(one.dtype) for one in layout):
                continue
            volumes = [np.empty(one.shape, one.dtype) for one in layout]
            self._keyed.patiently(number, volumes)
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
        return self._keyed.keys(number)

    def lasts(self, number: int) -> bool:
        """Tell whether the next job can be sure of the keys; where not, this says so, once."""
        return self._keyed.lasts(number)

    def read(self, number: int, out: Sequence[Volume]) -> StorageRead:
        """Fill one array for each field from the storage; tried again, twice, where the storage refuses.

        Raises DataError when the blocks are not as expected, and what the readers raise.
        """
        found = self._keyed.read(number, out)
        return StorageRead(found.cost, found.is_sure)
