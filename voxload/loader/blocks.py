"""DatasetBlocks: this rank's blocks of a VolumeDataset, with the keys under which tiers keep them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from voxload.cache.block import BlockKey
from voxload.cache.codec import Codec
from voxload.cache.disk import DiskTier
from voxload.cache.memory import MemoryTier
from voxload.cache.stored import store_form
from voxload.dataset import FieldLayout, VolumeDataset
from voxload.errors import DataError, StorageError
from voxload.readers.protocol import Location, ReadCost, Volume
from voxload.readers.store import is_url

_SPREAD = 1.1
"""How much larger than the first sample's packed blocks others are taken to be."""
_PAUSES = (0.05, 0.5)
"""Seconds before a read that the storage refused is tried again: a server that fails over takes about as long."""
_METADATA = ("", "zarr.json", ".zarray", ".zgroup")
"""What of a file or folder is written anew when it is replaced."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What was learnt of a sample."""

    keys: tuple[BlockKey, ...]
    targets: torch.Tensor | None = None
    has_targets: bool = False


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
    """

    def __init__(self, data: VolumeDataset, expected: tuple[FieldLayout, ...]) -> None:
        self._data = data
        self._expected = expected
        self._spatial = data.volume_shape(0)
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}

    def footprint(self, codec: Codec) -> int:
        """Return the bytes that a sample's blocks take of a tier: the most, or with a codec about as many.

        How far blocks shrink, the first sample's tell. A plan that counts on too little is carried out as far as there
        is room; one that counts on the most would leave most of the room empty.
        """
        packs = [one for one in self._expected if codec.suits(one.dtype)]
        sizes = [one.nbytes for one in self._expected if one not in packs]
        if packs:
            volumes = [np.empty(one.shape, one.dtype) for one in self._expected]
            self.read(0, volumes)
            stored = [store_form(volume, codec)[0].stored for volume in volumes if codec.suits(volume.dtype)]
            sizes += [min(one.nbytes, int(size * _SPREAD)) for one, size in zip(packs, stored, strict=True)]
        return sum(max(MemoryTier.footprint(size), DiskTier.footprint(size)) for size in sizes)

    def keys(self, sample: int) -> tuple[BlockKey, ...]:
        """Return the key of each field's block; the file is looked at once, and not opened."""
        return self._of(sample).keys

    def read(self, sample: int, out: Sequence[Volume]) -> ReadCost:
        """Fill one array for each field from the storage; tried again, twice, where the storage refuses.

        Raises DataError when the blocks are not as expected, and what the readers raise.
        """
        for pause in _PAUSES:
            try:
                return self._read(sample, out)
            except StorageError:
                time.sleep(pause)
        return self._read(sample, out)

    def _read(self, sample: int, out: Sequence[Volume]) -> ReadCost:
        layout = self._data.layout(sample)
        if layout != self._expected:
            raise unequal(self._data.sample_ids[sample], layout, self._expected)
        return self._data.read_into(sample, out)

    def targets(self, sample: int) -> torch.Tensor | None:
        """Return a sample's targets."""
        known = self._of(sample)
        if not known.has_targets:
            known = _Known(known.keys, self._data.read_targets(sample), has_targets=True)
            with self._lock:
                self._known[sample] = known
        return known.targets

    def _of(self, sample: int) -> _Known:
        with self._lock:
            known = self._known.get(sample)
        if known is None:
            known = _Known(self._keys(sample))
            with self._lock:
                known = self._known.setdefault(sample, known)
        return known

    def _keys(self, sample: int) -> tuple[BlockKey, ...]:
        data = self._data
        box, id_ = data.box(self._spatial), data.sample_ids[sample]
        locations = data.locations(sample)
        return tuple(
            BlockKey(f"{_identity(location)} {data.missing}", id_, field, box, data.boundary)
            for field, location in zip(data.field_names, locations, strict=True)
        )


def unequal(sample: str, found: Sequence[FieldLayout], expected: Sequence[FieldLayout]) -> DataError:
    """Return the error of a sample whose blocks are not like the first one's."""
    return DataError(
        f"sample {sample!r}",
        found=", ".join(f"{field.dtype} {field.shape}" for field in found),
        expected=", ".join(f"{field.dtype} {field.shape}" for field in expected) + " as the first sample",
        remedy="batches need blocks of one shape and type: convert or crop the samples to one",
    )


def _identity(location: Location) -> str:
    """Return what tells a stored volume from all others, and from itself once its file was replaced.

    A chunk file written anew within a Zarr hierarchy changes nothing here: stored samples are not to be written to.
    Ranks agree on it, so it holds no inode or device, which differ between nodes. It never raises: who reads a file
    that is not there says so.
    """
    parts = [
        location.path,
        location.dataset,
        str(location.axes),
        str(location.shape),
        str(location.dtype),
        str(location.window),
    ]
    if not is_url(location.path):
        root = Path(location.path)
        for name in dict.fromkeys((*_METADATA, *(f"{location.dataset}/{name}" for name in _METADATA))):
            try:
                status = (root / name.strip("/")).stat()
            except OSError:
                continue
            if not name.strip("/") and root.is_dir():
                continue  # a folder's own time changes with what others leave in it
            parts.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(parts)
