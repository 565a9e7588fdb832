"""Manifest: what a converted sample says of itself, and by which a later run knows it again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from voxload.convert.layout import Layout
from voxload.convert.options import StoredFormat
from voxload.convert.sources.protocol import RawCube
from voxload.errors import DataError

ATTRIBUTE = "voxload"
"""Attribute of the Zarr group or HDF5 file that holds the manifest."""
AXES = "CDHW"
"""Axis order of every converted volume."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The state of a source file: two runs that see the same state convert the same bytes."""

    name: str
    """Path relative to the folder that was converted."""
    path: str
    """Absolute path, for the reader of the manifest."""
    size: int
    """Length in bytes."""
    mtime_ns: int
    """Time of the last change, in ns since 1970."""

    @classmethod
    def of(cls, path: Path, name: str) -> SourceFile:
        """Return the present state of a file."""
        status = path.stat()
        return cls(name, str(path.resolve()), status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was converted from what, and how it is stored."""

    sample: str
    """Sample id."""
    source: SourceFile
    """The source file."""
    format: str
    """How the sample is stored: ``zarr`` or ``hdf5``."""
    dataset: str
    """Name of the volume."""
    dtype: str
    """numpy type string of the stored voxels, such as ``<i2``."""
    shape: tuple[int, ...]
    """Extents (C, D, H, W)."""
    source_axes: str
    """Order of the axes in the source's bytes."""
    chunks: tuple[int, ...]
    """Extents of a chunk."""
    shards: tuple[int, ...] | None
    """Extents of a shard; None where all chunks share one file."""
    targets: Mapping[str, float]
    """Target name to value."""
    stored_bytes: int = 0
    """Bytes of the volume in storage; 0 until it is complete."""
    version: int = _VERSION
    """Version of the way volumes are stored; a change of codecs changes it."""

    @classmethod
    def plan(cls, sample: str, source: SourceFile, *, cube: RawCube, layout: Layout, stored: StoredFormat) -> Manifest:
        """Return the manifest that a conversion will have, but for its stored bytes."""
        return cls(
            sample=sample,
            source=source,
            format=stored.value,
            dataset=cube.dataset,
            dtype=cube.dtype.newbyteorder("<").str,
            shape=layout.shape,
            source_axes=cube.order.axes,
            chunks=layout.chunks,
            shards=layout.shards,
            targets=dict(cube.targets),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values; floats keep every bit."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain

    @classmethod
    def from_json(cls, values: Any, subject: str) -> Manifest:
        """Return the manifest in plain values; raises DataError when they are not one."""
        try:
            lists = {name: tuple(values[name]) for name in ("shape", "chunks")}
            shards = values["shards"]
            source = SourceFile(**values["source"])
            return cls(**{**values, **lists, "source": source, "shards": None if shards is None else tuple(shards)})
        except (KeyError, TypeError) as error:
            raise DataError(
                subject,
                found=f"a damaged manifest ({error})",
                expected="one that voxload convert wrote",
                remedy="remove it and convert again",
            ) from error

    def is_same_conversion(self, other: Manifest) -> bool:
        """Tell whether both describe the same bytes stored the same way, wherever the source lies."""
        return self._identity() == other._identity()

    @property
    def origin(self) -> str:
        """Digest of what was converted and how, wherever the source lies; a sample converted anew has another one."""
        plain = dataclasses.replace(self, source=dataclasses.replace(self.source, path="")).to_json()
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:32]

    def _identity(self) -> Manifest:
        return dataclasses.replace(self, source=dataclasses.replace(self.source, path=""), stored_bytes=0)


def read_manifest(path: Path) -> Manifest | None:
    """Return the manifest of a converted sample, or None when voxload convert did not make `path`."""
    if path.is_dir():
        try:
            values = json.loads((path / "zarr.json").read_bytes())["attributes"][ATTRIBUTE]
        except (OSError, ValueError, KeyError, TypeError):
            return None
    else:
        try:
            with h5py.File(path, "r") as file:
                values = json.loads(file.attrs[ATTRIBUTE])
        except (OSError, ValueError, KeyError, TypeError):
            return None
    return Manifest.from_json(values, f"{path}")


def stored_bytes(path: Path, dataset: str) -> int:
    """Return the bytes that a volume takes in storage at present: files of a Zarr array, chunks of an HDF5 one."""
    if path.is_dir():
        return sum(part.stat().st_size for part in (path / dataset).rglob("*") if part.is_file())
    with h5py.File(path, "r") as file:
        return int(file[dataset].id.get_storage_size())
