"""KnownSamples: samples that were read before, and are read again, a batch of them, by one call of the core.

Of a small sample, Python takes longer than the storage: to look up its files, to look whether they are what they were,
to plan its boxes. All of that is the same each epoch, so it is learnt once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from voxload.readers.maderead import MadeRead, bytes_of, repeat
from voxload.readers.protocol import ReadCost, Volume
from voxload.readers.scratch import address

BUDGET = 2**25
"""Bytes of what is learnt of a data set's samples: of some ten thousand. What comes later is not learnt, for in random
order an older one would be forgotten for it that is wanted as soon."""
_OWN_BYTES = 2**10
"""What a sample counts beside its reads."""
_MOST_FAILURES = 3
"""A sample that could so often not be read again is not learnt any more: it would be read twice each time."""

Form = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any]]
"""Shape, strides and type of a field's array."""


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

    def empty(self) -> list[Volume]:
        """Return new arrays for it."""
        return [np.empty(shape, dtype) for shape, _, dtype in self.forms]

    @property
    def nbytes(self) -> int:
        """About as many bytes as it holds that no other one does."""
        return _OWN_BYTES + sum(read.nbytes for read in self.reads)


class KnownSamples:
    """What is known of samples, by index; safe to use from many threads: each step is one of a dictionary's own.

    A copy that another process gets knows nothing.
    """

    def __init__(self) -> None:
        self._known: dict[int, KnownSample] = {}
        self._failures: dict[int, int] = {}
        self._shared: dict[int, object] = {}  # by identity
        self._left = BUDGET

    def __reduce__(self) -> tuple[type[KnownSamples], tuple[()]]:
        return KnownSamples, ()

    def find(self, index: int) -> KnownSample | None:
        """Return what is known of a sample."""
        return self._known.get(index)

    def has_all(self, indices: Sequence[int]) -> bool:
        """Tell whether all of some samples are known, one at least; what is no index is for the data set to refuse."""
        known = self._known
        return bool(indices) and all(type(index) is int and index in known for index in indices)

    def may_learn(self, index: int) -> bool:
        """Tell whether a sample is worth learning about."""
        return self._left > 0 and index not in self._known and self._failures.get(index, 0) < _MOST_FAILURES

    def learn(self, index: int, sample: KnownSample) -> None:
        """Remember a sample."""
        self._left -= sample.nbytes
        for one in [one for read in sample.reads for one in read.shared]:
            if id(one) not in self._shared:
                self._shared[id(one)] = one
                self._left -= bytes_of(one)
        self._known[index] = sample

    def read(self, indices: Sequence[int], arrays: Sequence[Volume]) -> list[KnownSample] | None:
        """Read samples into arrays that have one place for each in front; None where one has to be read as if new.

        What is in the arrays is undefined then, and samples that do not come are forgotten.
        """
        found = list(map(self._known.get, indices))
        forms = tuple([(array.shape[1:], array.strides[1:], array.dtype) for array in arrays])
        places = [(address(array), array.strides[0]) for array in arrays]
        reads: list[tuple[int, int]] = []
        for place, sample in enumerate(found):
            if sample is None or sample.forms != forms:
                return None
            if sample.is_padded:
                for array in arrays:
                    array[place] = 0
            for (first, step), read in zip(places, sample.reads, strict=True):
                to = first + place * step
                if to % read.unit:
                    return None
                reads.append((read.at, to))
        if repeat(reads):
            self._forget_failed(indices, reads)
            return None
        return [sample for sample in found if sample is not None]

    def _forget_failed(self, indices: Sequence[int], reads: Sequence[tuple[int, int]]) -> None:
        """Forget samples that do not come."""
        each = len(reads) // len(indices)
        for place, index in enumerate(indices):
            if repeat(reads[place * each : (place + 1) * each]):
                self._failures[index] = self._failures.get(index, 0) + 1
                self._forget(index)

    def _forget(self, index: int) -> None:
        sample = self._known.pop(index, None)
        self._left += 0 if sample is None else sample.nbytes

    def clear(self) -> None:
        """Forget all samples."""
        self._known, self._shared, self._left = {}, {}, BUDGET


READING = ("read_into", "read_targets", "layout")
"""Methods by which a data set reads; what is learnt goes past those of a class that has its own."""


def reads_as(kind: type, base: type) -> bool:
    """Tell whether a class reads samples as `base` does."""
    return all(getattr(kind, name) is getattr(base, name) for name in READING)
