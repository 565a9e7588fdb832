"""DatasetBlocks: this rank's blocks of a VolumeDataset, with the keys under which tiers keep them.

Rules of this file:

1. A key names the generation of what it stands for, so that data that were written anew have other keys.
2. What was read is kept only where it is sure to be of that generation: taken before the read, long enough after the
   last change for the next one to show, and found again after it.
3. A sample's keys stay what they were when they were first asked for, unless nothing could be kept under them yet.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from voxload.cache.codec import Codec
from voxload.cache.disk.tier import DiskTier
from voxload.cache.form import store_form
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.protocol import BlockKey
from voxload.data.dataset import VolumeDataset
from voxload.data.layout import FieldLayout
from voxload.errors import StorageError, VoxloadError
from voxload.loader.batch import unequal_blocks
from voxload.prefetch.execution.resources import StorageRead
from voxload.readers.generation import Generation, file_generation
from voxload.readers.protocol import Location, ReadCost, Volume
from voxload.readers.store import is_url

Generations = tuple[Generation | None, ...]
"""Of each field; None of a field that its storage tells nothing of by which it could be known again."""


class BlockGenerations:
    """Tells the generations of samples' blocks; safe to use from many threads at once.

    Parameters
    ----------
    data
        The data set, not augmented.
    outlives
        Whether blocks may be kept beyond the job. Where not, nothing is asked of storage behind URLs: within a job its
        readers pin the versions that they read.
    """

    def __init__(self, data: VolumeDataset, *, outlives: bool) -> None:
        self._data = data
        self._outlives = outlives
        self._lock = threading.Lock()
        self._is_quick: tuple[bool, ...] | None = None

    def first(self, sample: int) -> Generations | None:
        """Return those of a sample's blocks before anything of it is read; None where its storage does not say.

        No file is opened whose own stamp tells all, as that of the first sample's does: there may be many samples.
        """
        if not self._is_asked(sample):
            return self._nothing
        with self._lock:
            if self._is_quick is None:
                self._is_quick = self._compared()
        if not all(self._is_quick):
            return self.now(sample)
        return _told(lambda: self._unopened(sample))

    def now(self, sample: int) -> Generations | None:
        """Return those of a sample's blocks as they are stored now; None where its storage does not say."""
        return _told(lambda: self._data.generations(sample)) if self._is_asked(sample) else self._nothing

    @property
    def _nothing(self) -> Generations:
        return (None,) * len(self._data.field_names)

    def _is_asked(self, sample: int) -> bool:
        return self._outlives or not any(is_url(location.path) for location in self._data.locations(sample))

    def _unopened(self, sample: int) -> Generations:
        boxes: dict[str, Generation | None] = {}
        for location in self._data.locations(sample):
            if location.path not in boxes:
                boxes[location.path] = Generation.joined([file_generation(location.path)])
        return tuple(boxes[location.path] for location in self._data.locations(sample))

    def _compared(self) -> tuple[bool, ...]:
        """Return of which fields the files alone tell all, as far as the first sample shows."""
        quick, whole = _told(lambda: self._unopened(0)), _told(lambda: self._data.generations(0))
        if quick is None or whole is None:
            return (False,) * len(self._nothing)
        return tuple(
            one is not None and other is not None and one.name == other.name
            for one, other in zip(quick, whole, strict=True)
        )


def _told(ask: Callable[[], Generations]) -> Generations | None:
    try:
        return ask()
    except (OSError, VoxloadError):  # who reads it says so
        return None


_SPREAD = 1.1
"""How much larger than the first sample's packed blocks others are taken to be."""
_PAUSES = (0.05, 0.5)
"""Seconds before a read that the storage refused is tried again: a server that fails over takes about as long."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What was learnt of a sample."""

    keys: tuple[BlockKey, ...]
    generations: Generations | None
    """What its blocks were stored as when the keys were made; None where the storage did not say."""
    targets: torch.Tensor | None = None
    has_targets: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether blocks may be kept under the keys."""
        return self.generations is not None and all(one is None or one.is_settled for one in self.generations)

    @property
    def lasts(self) -> bool:
        """Whether the next job can be sure of the keys."""
        return self.generations is not None and None not in self.generations


class DatasetBlocks:
    """One rank's blocks; safe to use from many threads at once.

    Targets are remembered: where they stand in the samples' files, a block that comes from a tier would open its file
    for them in every epoch. A few numbers a sample are small beside any block.

    Parameters
    ----------
    data
        The data set.
    expected
        Layout of every sample's blocks: batches are made of equal ones.
    outlives
        Whether blocks may be kept beyond the job.
    """

    def __init__(self, data: VolumeDataset, expected: tuple[FieldLayout, ...], *, outlives: bool = False) -> None:
        self._data = data
        self._expected = expected
        self._spatial = data.volume_shape(0)
        self._stored = BlockGenerations(data, outlives=outlives)
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}
        self._has_told = False

    def footprint(self, codec: Codec) -> int:
        """Return the bytes that a sample's blocks take of a tier: the most, or with a codec about as many.

        How far blocks shrink, the first sample's tell. A plan that counts on too little is carried out as far as there
        is room; one that counts on the most would leave most of the room empty.
        """
        packs = [one for one in self._expected if codec.suits(one.dtype)]
        sizes = [one.nbytes for one in self._expected if one not in packs]
        if packs:
            volumes = [np.empty(one.shape, one.dtype) for one in self._expected]
            self._patiently(0, volumes)
            stored = [store_form(volume, codec)[0].stored for volume in volumes if codec.suits(volume.dtype)]
            sizes += [min(one.nbytes, int(size * _SPREAD)) for one, size in zip(packs, stored, strict=True)]
        return sum(max(MemoryTier.footprint(size), DiskTier.footprint(size)) for size in sizes)

    def keys(self, sample: int) -> tuple[BlockKey, ...]:
        """Return the key of each field's block; what is stored is looked at once, and read by nobody."""
        return self._of(sample).keys

    def lasts(self, sample: int) -> bool:
        """Tell whether the next job can be sure of the keys; where not, this says so, once."""
        is_sure = self._of(sample).lasts
        if not is_sure:
            with self._lock:
                is_first, self._has_told = not self._has_told, True
            if is_first:
                warnings.warn(
                    f"{self._data.locations(sample)[0]}: its blocks are not kept on disk, for the next job could not "
                    "tell them from what may be written there until then; behind a URL that takes strong entity tags, "
                    "of at most 64 objects a block",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return is_sure

    def read(self, sample: int, out: Sequence[Volume]) -> StorageRead:
        """Fill one array for each field from the storage; tried again, twice, where the storage refuses.

        Raises DataError when the blocks are not as expected, and what the readers raise.
        """
        known = self._of(sample)
        if not known.is_settled:
            known = self._renewed(sample, known)
        cost = self._patiently(sample, out)
        is_sure = known.is_settled and _names(self._stored.now(sample)) == _names(known.generations)
        return StorageRead(cost, is_sure)

    def _patiently(self, sample: int, out: Sequence[Volume]) -> ReadCost:
        for pause in _PAUSES:
            try:
                return self._read(sample, out)
            except StorageError:
                time.sleep(pause)
        return self._read(sample, out)

    def _read(self, sample: int, out: Sequence[Volume]) -> ReadCost:
        layout = self._data.layout(sample)
        if layout != self._expected:
            raise unequal_blocks(self._data.sample_ids[sample], layout, self._expected)
        return self._data.read_into(sample, out)

    def targets(self, sample: int) -> torch.Tensor | None:
        """Return a sample's targets."""
        known = self._of(sample)
        if not known.has_targets:
            targets = self._data.read_targets(sample)
            with self._lock:
                known = replace(self._known[sample], targets=targets, has_targets=True)
                self._known[sample] = known
        return known.targets

    def _of(self, sample: int) -> _Known:
        with self._lock:
            known = self._known.get(sample)
        if known is None:
            known = self._looked(sample)
            with self._lock:
                known = self._known.setdefault(sample, known)
        return known

    def _renewed(self, sample: int, known: _Known) -> _Known:
        """Look again at what had been written just before it was looked at first."""
        fresh = self._looked(sample)
        with self._lock:
            if self._known[sample].generations is known.generations:
                self._known[sample] = replace(self._known[sample], keys=fresh.keys, generations=fresh.generations)
            return self._known[sample]

    def _looked(self, sample: int) -> _Known:
        data, generations = self._data, self._stored.first(sample)
        box, id_ = data.box(self._spatial), data.sample_ids[sample]
        names = _names(generations) or ("",) * len(data.field_names)
        return _Known(
            tuple(
                BlockKey(f"{_identity(location)} {data.missing}\n{name}", id_, field, box, data.boundary)
                for field, location, name in zip(data.field_names, data.locations(sample), names, strict=True)
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
