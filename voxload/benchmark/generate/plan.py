"""DatasetPlan: all that the samples of a generated data set follow from; pure, and small enough for any process."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from voxload.benchmark.generate.matter import Matter
from voxload.benchmark.generate.storage import Codec, Extents, Storage, StoreFormat
from voxload.benchmark.generate.values import Noise, Pattern, Values
from voxload.errors import DataError, UsageError
from voxload.geometry import Box, slabs
from voxload.readers.protocol import Volume


class Kind(enum.StrEnum):
    """Kinds of values; any block of each can be made again by itself, and so verified."""

    COUNTS = "counts"
    """Dark matter: integers that codecs make three to six times smaller, as those of real universes."""
    FLOATS = "floats"
    """Random bits as floats: no codec makes them smaller."""
    PATTERN = "pattern"
    """Any type over its whole range; no codec makes its integers smaller."""


_MAKERS: dict[Kind, Callable[[np.dtype[Any], int], Values]] = {
    Kind.COUNTS: Matter,
    Kind.FLOATS: Noise,
    Kind.PATTERN: Pattern,
}


@dataclass(frozen=True, slots=True)
class Contents:
    """A kind of values and a seed."""

    kind: Kind = Kind.PATTERN
    """What voxels hold."""
    seed: int = 0
    """Seed of all samples, 0 or more."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UsageError("seed", found=str(self.seed), expected="0 or more")

    def values(self, dtype: np.dtype[Any]) -> Values:
        """Return the values; raises UsageError when this kind has none of that type."""
        return _MAKERS[self.kind](dtype, self.seed)


TIMES_MEMORY = 5.0
"""Data set over memory, at least, so that storage is measured and not the page cache (MLPerf Storage's rules)."""
PART_BYTES = 32 * 2**20
"""Voxels that are made and written at once, or one layer of chunks."""
_PREFIX = "sample_"


@dataclass(frozen=True, slots=True)
class DatasetPlan:
    """A data set of equal samples; raises UsageError where its parts contradict each other."""

    shape: Extents
    """Extents (C, D, H, W) of a sample."""
    dtype: str
    """Type of a voxel as stored, such as ``<i2``."""
    storage: Storage
    """How a sample is stored."""
    contents: Contents = dataclasses.field(default_factory=Contents)
    """What voxels hold."""
    samples: int = 1
    """Number of samples."""

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            raise UsageError("shape", found=str(self.shape), expected="extents of 1 or more")
        if self.samples < 1:
            raise UsageError("number of samples", found=str(self.samples), expected="1 or more")
        self.storage.check(self.shape, self.stored_dtype.itemsize)
        self.contents.values(self.stored_dtype)

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Type of a voxel as stored."""
        return voxel_dtype(self.dtype)

    @property
    def values(self) -> Values:
        """What the voxels hold."""
        return self.contents.values(self.stored_dtype)

    @property
    def spatial(self) -> tuple[int, int, int]:
        """Extents (D, H, W) of a sample."""
        return self.shape[1:]

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Extents of a sample in the order of its axes."""
        return self.storage.order.to_stored(self.shape)

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample's voxels, not compressed."""
        return prod(self.shape) * self.stored_dtype.itemsize

    def name(self, number: int) -> str:
        """Return the id of a sample; ids sort as numbers do."""
        return f"{_PREFIX}{number:08d}"

    def number(self, name: str) -> int:
        """Return the number of a sample; raises DataError when the plan has none of that id."""
        text = name.removeprefix(_PREFIX)
        if text.isdecimal() and int(text) < self.samples and self.name(int(text)) == name:
            return int(text)
        raise DataError(
            f"sample {name!r}",
            found="no such sample in the plan",
            expected=f"{self.name(0)} to {self.name(self.samples - 1)}",
        )

    def parts(self) -> Iterator[Box]:
        """Yield the spatial boxes of a sample that are made at once: whole chunks and shards, in the order of storage.

        Each is of `PART_BYTES` at most, or one shard or chunk thick.
        """
        order = [axis for axis in self.storage.axes if axis != "C"]
        places = ["DHW".index(axis) for axis in order]
        extents = tuple(self.spatial[place] for place in places)
        unit = self.storage.unit or (1, 1, 1, 1)
        widths = tuple(unit[1 + place] for place in places)
        most = PART_BYTES // (self.shape[0] * self.stored_dtype.itemsize)
        for part in slabs(Box.whole(extents), widths, most=max(most, 1)):
            start, stop = (tuple(corner[order.index(axis)] for axis in "DHW") for corner in (part.start, part.stop))
            yield Box(start, stop)

    def trial_chunk(self) -> Volume:
        """Make the chunk in the middle of the first sample: what codecs make of it, they make of all."""
        channels, *widths = self.storage.chunks or (1, 1, 1, 1)
        middle = (extent // 2 // width * width for extent, width in zip(self.spatial, widths, strict=True))
        start = tuple(middle)
        box = Box(start, tuple(map(min, map(sum, zip(start, widths, strict=True)), self.spatial)))
        chunk = np.empty((channels, *box.shape), self.values.dtype)
        self.values.fill(box, chunk, sample=0)
        return chunk

    def stored_sample_bytes(self) -> int:
        """Return about how many bytes a sample takes in storage: a trial chunk is compressed, nothing is written."""
        if self.storage.chunks is None or self.storage.codec.is_none:
            return self.sample_bytes
        chunk = self.trial_chunk()
        return math.ceil(self.sample_bytes * self.storage.codec.stored_size(chunk) / chunk.nbytes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any], subject: str) -> DatasetPlan:
        """Return the plan of what `to_dict` gave and JSON kept; raises DataError about `subject` on anything else."""
        try:
            rest = dict(values)
            return cls(
                shape=tuple(rest.pop("shape")),
                storage=_storage(rest.pop("storage")),
                contents=_contents(rest.pop("contents")),
                **rest,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                subject, found=f"a damaged plan ({error})", expected="one that voxload bench generate wrote"
            ) from error


def voxel_dtype(text: str) -> np.dtype[Any]:
    """Return the type of a name such as ``<i2``; raises UsageError when numpy knows none."""
    try:
        return np.dtype(text)
    except TypeError:
        raise UsageError("dtype", found=repr(text), expected="a numpy type such as <i2") from None


def samples_for(sample_bytes: int, *, memory_bytes: int, times_memory: float = TIMES_MEMORY) -> int:
    """Return how many samples make a data set that memory cannot hold.

    Parameters
    ----------
    sample_bytes
        Bytes of a sample in storage, which is what the page cache holds.
    memory_bytes
        Memory of all nodes that will read, together.
    times_memory
        Data set over memory, at least.
    """
    if times_memory <= 0 or not math.isfinite(times_memory):
        raise UsageError("times memory", found=str(times_memory), expected="a number above 0")
    return max(1, math.ceil(times_memory * memory_bytes / sample_bytes))


def _storage(values: dict[str, Any]) -> Storage:
    rest = dict(values)
    cuts = {name: rest.pop(name) for name in ("chunks", "shards")}
    extents: dict[str, Any] = {name: None if cut is None else tuple(cut) for name, cut in cuts.items()}
    return Storage(format=StoreFormat(rest.pop("format")), codec=Codec(**rest.pop("codec")), **extents, **rest)


def _contents(values: dict[str, Any]) -> Contents:
    rest = dict(values)
    return Contents(kind=Kind(rest.pop("kind")), **rest)
