"""ZarrStorage: one Zarr v3 group a volume, whose shards are appended to chunk by chunk.

A shard is its chunks in any order and an index of where they are at its end. zarr-python encodes a shard in memory, at
four times its size, and reads it again to add to it; here chunks go straight to the file, and the index follows.
Source: Zarr v3 codec sharding_indexed, version 1.0.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import zarr

from voxload.convert.manifest import ATTRIBUTE, AXES, Manifest
from voxload.convert.storage.compression import Compression, ZarrEncoder
from voxload.convert.storage.protocol import Place, StoredChunk
from voxload.files.atomic import TEMPORARY_MARK, sync
from voxload.files.names import inside

_NONE = np.uint64(2**64 - 1)
"""Offset and length of a chunk that a shard does not have, beyond the volume's border."""
_CHECKSUM_BYTES = 4


@dataclass(frozen=True, slots=True)
class ZarrStorage:
    """A sharded array. Every chunk is stored, those that are all zero too: a missing chunk is an error for voxload."""

    manifest: Manifest
    """What is written."""

    @property
    def encoder(self) -> ZarrEncoder:
        """What makes a chunk's bytes."""
        return ZarrEncoder(
            Compression(self.manifest.compression), np.dtype(self.manifest.dtype), prod(self.manifest.chunks)
        )

    @property
    def _per_shard(self) -> Place:
        """Chunks along each axis of a shard."""
        return _counts(self._shards, self.manifest.chunks)

    @property
    def _shards(self) -> tuple[int, ...]:
        return self.manifest.shards or self.manifest.chunks

    @property
    def _grid(self) -> Place:
        """Shards along each axis of the volume."""
        return _counts(self.manifest.shape, self._shards)

    def create(self, folder: Path) -> None:
        """Write the metadata; zarr-python does."""
        inside(folder, self.manifest.dataset)
        group = zarr.create_group(folder, zarr_format=3)
        group.create_array(
            self.manifest.dataset,
            shape=self.manifest.shape,
            chunks=self.manifest.chunks,
            shards=self._shards,
            dtype=np.dtype(self.manifest.dtype),
            compressors=self.encoder.codecs,
            fill_value=0,
            dimension_names=list(AXES.lower()),
        )

    def file_of(self, place: Place) -> int:
        """Return the number of a chunk's shard."""
        number = 0
        for index, count, extent in zip(place, self._per_shard, self._grid, strict=True):
            number = number * extent + index // count
        return number

    def file_name(self, number: int) -> str:
        """Return a shard's path, by the default chunk key encoding."""
        return "/".join((self.manifest.dataset, "c", *map(str, np.unravel_index(number, self._grid))))

    def finish(self, folder: Path, chunks: Mapping[Place, StoredChunk], manifest: Manifest) -> Path:
        """Append each shard's index, and give the group its manifest."""
        of_file: defaultdict[int, list[tuple[Place, StoredChunk]]] = defaultdict(list)
        for place, chunk in chunks.items():
            of_file[chunk.file].append((place, chunk))
        for number, found in of_file.items():
            _append(inside(folder, self.file_name(number)), self._index(found))
        metadata = folder / "zarr.json"
        values = json.loads(metadata.read_bytes())
        values["attributes"] = {ATTRIBUTE: manifest.to_json()}
        values["consolidated_metadata"] = self._consolidated(folder)
        # Under one name, so that nobody's is left: a process killed here is followed by one that begins here.
        temporary = folder / f".{metadata.name}{TEMPORARY_MARK}finish"
        temporary.write_text(json.dumps(values))
        sync(temporary)
        temporary.rename(metadata)
        return folder

    def _consolidated(self, folder: Path) -> dict[str, Any]:
        """Return copies of the documents below the group's, so that a storage that cannot list tells what is there.

        As zarr-python 3 writes them. Its own function writes the document a second time, and not in one step.
        """
        array = json.loads((inside(folder, self.manifest.dataset) / "zarr.json").read_bytes())
        return {"kind": "inline", "must_understand": False, "metadata": {self.manifest.dataset: array}}

    def size(self, folder: Path, chunks: Mapping[Place, StoredChunk]) -> int:
        """Return the bytes of the array's chunks, indices and metadata."""
        index = 16 * prod(self._per_shard) + _CHECKSUM_BYTES
        files = {chunk.file for chunk in chunks.values()}
        metadata = (folder / self.manifest.dataset / "zarr.json").stat().st_size
        return sum(chunk.length for chunk in chunks.values()) + index * len(files) + metadata

    def _index(self, found: list[tuple[Place, StoredChunk]]) -> bytes:
        """Return a shard's index with its checksum."""
        index = np.full((*self._per_shard, 2), _NONE, "<u8")
        for place, chunk in found:
            within = tuple(number % count for number, count in zip(place, self._per_shard, strict=True))
            index[within] = chunk.offset, chunk.length
        data = index.tobytes()
        return data + crc32c.crc32c(data).to_bytes(_CHECKSUM_BYTES, "little")


@lru_cache
def _counts(extents: tuple[int, ...], widths: tuple[int, ...]) -> Place:
    """Return how many pieces of these widths there are along each axis; asked for every chunk."""
    c, d, h, w = (-(-extent // width) for extent, width in zip(extents, widths, strict=True))
    return c, d, h, w


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fdatasync(file.fileno())
