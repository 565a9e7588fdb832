"""KnownSamples: samples that were read before, and are read again, a batch of them, by one call of the core.

Of a small sample, Python takes longer than the storage: to look up its files, to look whether they are what they were,
to plan its boxes. All of that is the same each epoch, so it is learnt once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from operator import gt, sub
from typing import Any

import numpy as np
import torch

from voxload.augment import Placement
from voxload.geometry import Box
from voxload.readers.maderead import MadeRead, MovedBoxes, bytes_of, repeat
from voxload.readers.protocol import ReadCost, Volume
from voxload.readers.scratch import address

BUDGET = 2**25
"""Bytes of what is learnt of a data set's samples: of some ten thousand. What comes later is not learnt, for in random
order an older one would be forgotten for it that is wanted as soon."""
_OWN_BYTES = 2**10
"""What a sample counts beside its reads."""
_MOST_FAILURES = 3
"""A sample that could so often not be read again is not learnt any more: it would be read twice each time."""

_MOST_PAUSES = 2**12

Form = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any]]
"""Shape, strides and type of a field's array."""


@dataclass(frozen=True, slots=True)
class KnownCrop:
    """Where a sample was cut out of a stored one when it was read."""

    spatial: tuple[int, int, int]
    """Extents (D, H, W) of the stored one."""
    boxes: tuple[Box, ...]
    """This rank's block of each field, in indices of what was cut."""
    sources: tuple[Box, ...]
    """The same in indices of what is stored."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownSample:
    """A sample that was read before; immutable."""

    forms: tuple[Form, ...]
    """Of the arrays that it was read into; it fits such arrays alone."""
    reads: tuple[MadeRead, ...]
    """How each field is read."""
    is_padded: bool
    """Whether a part of the arrays is not read but zero."""
    cost: ReadCost
    """What it takes of the storage."""
    targets: torch.Tensor | None
    """Its targets; not to be changed."""
    crop: KnownCrop | None = None
    """Where it was cut; None where it was not."""

    @property
    def is_partial(self) -> bool:
        """Whether it is not known yet how to read it from everywhere it may be cut."""
        return any(read.moves is not None and read.moves.is_partial for read in self.reads)

    def cut(self, placement: Placement, boxes: Sequence[Box], spatial: tuple[int, int, int]) -> KnownSample | None:
        """Return it as it was cut; None where it cannot be read from another place."""
        sources = tuple([placement.source(box) for box in boxes])
        is_inside = all(min(one.start) >= 0 and not any(map(gt, one.stop, spatial)) for one in sources)
        if not is_inside or any(read.moves is None for read in self.reads):
            return None
        return replace(self, crop=KnownCrop(spatial, tuple(boxes), sources))

    def moved(self, placement: Placement, cost: ReadCost) -> MovedSample | None:
        """Return it as it is cut at another place, which took `cost` to find.

        None where a block leaves what is stored, or it is not known how to read it there.
        """
        crop = self.crop
        if crop is None:
            return None
        boxes: list[MovedBoxes] = []
        for read, box, source in zip(self.reads, crop.boxes, crop.sources, strict=True):
            wanted = placement.source(box)
            if read.moves is None or min(wanted.start) < 0 or any(map(gt, wanted.stop, crop.spatial)):
                return None
            found = read.moves.moved(tuple(map(sub, wanted.start, source.start)))
            if found is None:
                return None
            boxes.append(found)
            cost += found.cost
        return MovedSample(KnownSample(self.forms, self.reads, self.is_padded, cost, self.targets, crop), tuple(boxes))

    def joined(self, earlier: KnownSample) -> KnownSample:
        """Return what also knows how to read it from where it was cut earlier."""
        if len(earlier.reads) != len(self.reads):
            return self
        pairs = zip(self.reads, earlier.reads, strict=True)
        return replace(self, reads=tuple(one.joined(other) for one, other in pairs))

    def empty(self) -> list[Volume]:
        """Return new arrays for it."""
        return [np.empty(shape, dtype) for shape, _, dtype in self.forms]

    @property
    def nbytes(self) -> int:
        """About as many bytes as it holds that no other one does."""
        return _OWN_BYTES + sum(read.nbytes for read in self.reads)


@dataclass(frozen=True, slots=True, eq=False)
class MovedSample:
    """A sample that is cut elsewhere than the one that was read before."""

    known: KnownSample
    """That one, with what this one costs."""
    boxes: tuple[MovedBoxes, ...]
    """How each field is read."""


@dataclass(frozen=True, slots=True)
class ReadSample:
    """A sample that was just read."""

    volumes: Sequence[Volume]
    """What it was read into, one array a field."""
    cost: ReadCost
    """What that took."""
    targets: torch.Tensor | None
    """Its targets."""


Key = Hashable
"""Of a sample, its index; of those that are cut out of one stored sample, one for all."""


class KnownSamples:
    """What is known of samples, by key; safe to use from many threads: each step is one of a dictionary's own.

    A copy that another process gets knows nothing.
    """

    def __init__(self) -> None:
        self._known: dict[Key, KnownSample] = {}
        self._failures: dict[Key, int] = {}
        self._pauses: dict[Key, tuple[int, int]] = {}  # reads until the next try, and between the last two
        self._shared: dict[int, object] = {}  # by identity
        self._left = BUDGET

    def __reduce__(self) -> tuple[type[KnownSamples], tuple[()]]:
        return KnownSamples, ()

    def find(self, key: Key) -> KnownSample | None:
        """Return what is known of a sample."""
        return self._known.get(key)

    def has_all(self, keys: Sequence[Key]) -> bool:
        """Tell whether all of some samples are known, one at least."""
        known = self._known
        return bool(keys) and all(key in known for key in keys)

    def may_learn(self, key: Key) -> bool:
        """Tell whether a sample is worth learning about."""
        known = self._known.get(key)
        if (known is not None and not known.is_partial) or self._left <= 0:
            return False
        return self._failures.get(key, 0) < _MOST_FAILURES and not self._waits(key)

    def refuse(self, key: Key) -> None:
        """Note that nothing could be learnt of what is read many times: the next try comes later each time."""
        if len(self._pauses) >= _MOST_PAUSES:
            self._pauses.clear()
        _, last = self._pauses.get(key, (0, 0))
        self._pauses[key] = (2 * last + 1,) * 2

    def _waits(self, key: Key) -> bool:
        """Tell whether it is too early to try again, and count that it was asked."""
        left, last = self._pauses.get(key, (0, 0))
        if left:
            self._pauses[key] = left - 1, last
        return left > 0

    def learn(self, key: Key, sample: KnownSample) -> None:
        """Remember a sample; what was known of it before stays known."""
        earlier = self._known.get(key)
        if earlier is not None:
            self._left += earlier.nbytes
            sample = sample.joined(earlier)
        self._left -= sample.nbytes
        for one in [one for read in sample.reads for one in read.shared]:
            if id(one) not in self._shared:
                self._shared[id(one)] = one
                self._left -= bytes_of(one)
        self._known[key] = sample

    def read(self, keys: Sequence[Key], arrays: Sequence[Volume]) -> list[KnownSample] | None:
        """Read samples into arrays that have one place for each in front; None where one has to be read as if new.

        What is in the arrays is undefined then, and samples that do not come are forgotten.
        """
        found = list(map(self._known.get, keys))
        places = _Places.of(arrays)
        reads: list[tuple[int, int]] = []
        for place, sample in enumerate(found):
            if sample is None or sample.forms != places.forms:
                return None
            if sample.is_padded:
                for array in arrays:
                    array[place] = 0
            for to, read in zip(places.addresses(place), sample.reads, strict=True):
                if to % read.unit:
                    return None
                reads.append((read.at, to))
        if repeat(reads):
            each = len(reads) // len(keys)
            for place, key in enumerate(keys):
                if repeat(reads[place * each : (place + 1) * each]):
                    self._fail(key)
            return None
        return [sample for sample in found if sample is not None]

    def read_moved(
        self, keys: Sequence[Key], arrays: Sequence[Volume], samples: Sequence[MovedSample]
    ) -> list[KnownSample] | None:
        """Read samples that are cut elsewhere than those of the keys were; see `read`."""
        places = _Places.of(arrays)
        wanted: list[list[tuple[MadeRead, MovedBoxes, int]]] = []
        for place, sample in enumerate(samples):
            addresses = places.addresses(place)
            parts = list(zip(sample.known.reads, sample.boxes, addresses, strict=True))
            if sample.known.forms != places.forms or any(to % read.unit for read, _, to in parts):
                return None
            wanted.append(parts)
        if _repeat_together([part for parts in wanted for part in parts]):
            # Once each: many crops of a batch lie in one volume.
            for key in {key for key, parts in zip(keys, wanted, strict=True) if _repeat_together(parts)}:
                self._fail(key)
            return None
        return [sample.known for sample in samples]

    def _fail(self, key: Key) -> None:
        """Forget a sample that does not come."""
        self._failures[key] = self._failures.get(key, 0) + 1
        self._forget(key)

    def _forget(self, key: Key) -> None:
        sample = self._known.pop(key, None)
        self._left += 0 if sample is None else sample.nbytes

    def clear(self) -> None:
        """Forget all samples."""
        self._known, self._shared, self._left = {}, {}, BUDGET


@dataclass(frozen=True, slots=True)
class _Places:
    """Where arrays with one place for each sample in front have these."""

    forms: tuple[Form, ...]
    """Of a sample's arrays."""
    steps: tuple[tuple[int, int], ...]
    """Address of the first, and bytes to the next one."""

    @classmethod
    def of(cls, arrays: Sequence[Volume]) -> _Places:
        forms = tuple([(array.shape[1:], array.strides[1:], array.dtype) for array in arrays])
        return cls(forms, tuple([(address(array), array.strides[0]) for array in arrays]))

    def addresses(self, place: int) -> list[int]:
        return [first + place * step for first, step in self.steps]


def _repeat_together(wanted: Sequence[tuple[MadeRead, MovedBoxes, int]]) -> int:
    """Make reads that were moved, those of one volume as one; return how many volumes' did not come whole."""
    parts: dict[int, tuple[MadeRead, list[tuple[MovedBoxes, int]]]] = {}
    for read, boxes, to in wanted:
        parts.setdefault(read.at, (read, []))[1].append((boxes, to))
    made = [read.together(moved) for read, moved in parts.values()]
    return repeat([(one.at, 0) for one in made])


READING = ("read_into", "read_targets", "layout")
"""Methods by which a data set reads; what is learnt goes past those of a class that has its own."""


def reads_as(kind: type, base: type) -> bool:
    """Tell whether a class reads samples as `base` does."""
    return all(getattr(kind, name) is getattr(base, name) for name in READING)
