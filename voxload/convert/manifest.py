"""Manifest: what a converted volume says of itself and of its samples, by which a later run knows it again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from voxload.catalog.statistics import Statistics
from voxload.errors import DataError, UsageError
from voxload.files.names import stays_inside
from voxload.files.regular import parse_json, read_document
from voxload.geometry import Box
from voxload.readers.faults import translated
from voxload.readers.hdf5.file import open_file

ATTRIBUTE = "voxload"
"""Attribute of the Zarr group, or scalar dataset of the HDF5 file, that holds the manifest."""
AXES = "CDHW"
"""Axis order of every converted volume."""

VERSION = 2
"""Version of the way volumes are stored; a change of codecs or of this module changes it."""


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
        """Return the present state of a file, or of a folder as its metadata say."""
        status = (path / _folder_metadata(path) if path.is_dir() else path).stat()
        return cls(name, str(path.resolve()), status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Variable:
    """One raw cube that became channels of a volume, beside others."""

    name: str
    """What the caller calls it."""
    files: tuple[SourceFile, ...]
    """The file, and others that belong to it."""
    dataset: str
    """Name of the cube in the file."""
    part: str
    """Which of several samples in the file it is."""
    axes: str
    """Order of the axes in the source's bytes."""
    first: int
    """Its first channel in the volume."""
    channels: int
    """How many it has."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """What else the file says of it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One raw cube, or several that are its channels, and where it lies in the volume."""

    files: tuple[SourceFile, ...]
    """The file, and others that belong to it; all files of variables."""
    dataset: str
    """Name of the cube in the file."""
    part: str
    """Which of several samples in the file it is."""
    axes: str
    """Order of the axes in the source's bytes."""
    first: int
    """First plane along D in the volume."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """What else the file says of it."""
    variables: tuple[Variable, ...] = ()
    """What its channels were made of, in their order; empty where that is one cube as it was."""
    spacing: tuple[float, float, float] | None = None
    """Distance of neighbouring voxels along (D, H, W) in mm; None where it is not known."""
    affine: tuple[float, ...] | None = None
    """Rows of the 4 x 4 matrix from the cube's voxel indices (d, h, w, 1) to RAS in mm; None where it is not known."""
    coordinates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By axis, D, H or W, a number for each voxel along it; without axes that have none."""

    @property
    def cubes(self) -> frozenset[tuple[str, str, str]]:
        """The raw cubes: file, name in it, and which of several samples in it."""
        return frozenset((one.files[0].path, one.dataset, one.part) for one in self.variables or (self,))

    def path_of(self, channel: int) -> str:
        """Return the file that a channel's voxels come from."""
        later = (one for one in reversed(self.variables) if one.first <= channel)
        return next(later, self).files[0].path


@dataclass(frozen=True, slots=True)
class Member:
    """One sample, and where it lies in the volume."""

    sample: str
    """Sample id."""
    universe: str
    """Id of what it was cut from, which is its own where it is whole."""
    start: tuple[int, int, int]
    """First voxel (d, h, w) in the volume."""
    shape: tuple[int, int, int]
    """Extents (D, H, W)."""
    origin: tuple[int, int, int] | None
    """First voxel (d, h, w) in the universe; None where the sample is all of it."""
    targets: Mapping[str, float] = field(default_factory=dict)
    """Target name to value."""

    @property
    def box(self) -> Box:
        """Its voxels in the volume."""
        stop = tuple(lo + extent for lo, extent in zip(self.start, self.shape, strict=True))
        return Box(self.start, stop)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was converted from what, and how it is stored."""

    name: str
    """Name of the volume's file without suffix."""
    format: str
    """How the volume is stored: ``zarr`` or ``hdf5``."""
    dataset: str
    """Name of the volume in its file."""
    dtype: str
    """numpy type string of the stored voxels, such as ``<i2``."""
    shape: tuple[int, ...]
    """Extents (C, D, H, W)."""
    chunks: tuple[int, ...]
    """Extents of a chunk."""
    shards: tuple[int, ...] | None
    """Extents of a shard; None where all chunks share one file."""
    compression: str
    """How chunks are compressed."""
    parts: tuple[Part, ...]
    """The raw cubes, in the order of their places."""
    members: tuple[Member, ...]
    """The samples, in the order of their places."""
    results: tuple[SampleResult, ...] = ()
    """What was stored of each sample; empty until the volume is complete."""
    stored_bytes: int = 0
    """Bytes of the volume in storage; 0 until it is complete."""
    version: int = VERSION
    """Version of the way volumes are stored."""

    @property
    def decoded_bytes(self) -> int:
        """Bytes of all voxels."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def part_of(self, member: Member) -> Part:
        """Return the raw cube that a sample lies in, or is."""
        return self.parts[bisect_right(self.parts, member.start[0], key=lambda part: part.first) - 1]

    def to_json(self) -> dict[str, Any]:
        """Return plain values; floats keep every bit."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        for part in plain["parts"]:
            for name in ("variables", "coordinates"):  # as it was written before there were any
                if not part[name]:
                    del part[name]
        return plain

    @classmethod
    def from_json(cls, values: Any, subject: str) -> Manifest:
        """Return the manifest in plain values; raises DataError when they are not one."""
        try:
            if values["version"] != VERSION:
                raise ValueError(f"version {values['version']}, not {VERSION}")  # noqa: TRY301 - as below
            if not values["parts"]:
                raise ValueError("no parts")  # noqa: TRY301 - as below
            if not stays_inside(values["dataset"]):
                raise ValueError(f"dataset {values['dataset']!r}")  # noqa: TRY301 - as below
            shards = values["shards"]
            return cls(
                **{
                    **values,
                    "shape": tuple(values["shape"]),
                    "chunks": tuple(values["chunks"]),
                    "shards": None if shards is None else tuple(shards),
                    "parts": tuple(map(_part, values["parts"])),
                    "members": tuple(map(_member, values["members"])),
                    "results": tuple(map(SampleResult.from_json, values["results"])),
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                subject,
                found=f"a damaged manifest ({error})",
                expected="one that this voxload convert wrote",
                remedy="remove it and convert again",
            ) from error

    def is_same_conversion(self, other: Manifest) -> bool:
        """Tell whether both describe the same bytes stored the same way, wherever the sources lie."""
        return self.identity() == other.identity()

    @property
    def origin(self) -> str:
        """Digest of what was converted and how, wherever the source lies; one converted anew has another one."""
        text = json.dumps({"of": self.identity(), "bytes": self.stored_bytes}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def identity(self) -> dict[str, Any]:
        """Return what decides over the stored bytes, in plain values."""
        plain = self.to_json()
        for part in plain["parts"]:
            for one in (part, *part.get("variables", ())):
                for file in one["files"]:
                    del file["path"]
            # They say where the voxels lie, not what they are, and earlier versions did not keep them.
            del part["spacing"], part["affine"]
            part.pop("coordinates", None)
        del plain["results"], plain["stored_bytes"]
        return plain


def check_unchanged(part: Part) -> None:
    """Refuse a source in another state than its conversion began with: its voxels may be of two; raises DataError."""
    for before in part.files:
        path = Path(before.path)
        with translated(f"{path}"):
            now = SourceFile.of(path, before.name)
        if dataclasses.replace(now, path=before.path) != before:
            raise DataError(
                f"{path}",
                found=f"{now.size} bytes changed at {now.mtime_ns} ns",
                expected=f"the {before.size} bytes of {before.mtime_ns} ns that the conversion began with",
                remedy="convert it again when nothing writes to it",
            )


def read_manifest(path: Path) -> Manifest | None:
    """Return the manifest of a converted volume, or None when voxload convert did not make `path`.

    Raises DataError when it is damaged, or of another version of voxload.
    """
    if not path.is_dir() and not path.is_file():
        return None
    try:
        if path.is_dir():
            values = parse_json(read_document(path / "zarr.json"))["attributes"][ATTRIBUTE]
        else:
            with open_file(str(path)) as file:
                values = parse_json(file[ATTRIBUTE][()])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Manifest.from_json(values, f"{path}")


def stored_bytes(path: Path, dataset: str) -> int:
    """Return the bytes that a volume takes in storage at present: files of a Zarr array, chunks of an HDF5 one."""
    if path.is_dir():
        return sum(part.stat().st_size for part in (path / dataset).rglob("*") if part.is_file())
    with h5py.File(path, "r") as file:
        return int(file[dataset].id.get_storage_size())


def _part(values: Mapping[str, Any]) -> Part:
    variables = tuple(Variable(**{**one, "files": _files(one)}) for one in values.get("variables", ()))
    lists: dict[str, Any] = {"spacing": _finite(values.get("spacing"), 3), "affine": _finite(values.get("affine"), 16)}
    along = {axis: _finite(numbers, len(numbers)) for axis, numbers in values.get("coordinates", {}).items()}
    if not along.keys() <= set("DHW"):
        raise ValueError(f"coordinates of axes {sorted(along)}")
    return Part(**{**values, **lists, "files": _files(values), "variables": variables, "coordinates": along})


def _finite(values: Any, count: int) -> tuple[float, ...] | None:
    """Return so many finite numbers, None of none; raises TypeError or ValueError on anything else."""
    if values is None:
        return None
    found = tuple(map(float, values))
    if len(found) != count or not np.isfinite(found).all():
        raise ValueError(f"{values}, not {count} finite numbers")
    return found


def _files(values: Mapping[str, Any]) -> tuple[SourceFile, ...]:
    found = tuple(SourceFile(**file) for file in values["files"])
    if not found:
        raise ValueError("a part without files")
    return found


def _member(values: Mapping[str, Any]) -> Member:
    origin = values["origin"]
    lists = {"start": tuple(values["start"]), "shape": tuple(values["shape"])}
    return Member(**{**values, **lists, "origin": None if origin is None else tuple(origin)})


def _folder_metadata(path: Path) -> str:
    """Return the file whose state stands for that of a Zarr folder."""
    names = ("zarr.json", ".zarray", ".zgroup")
    return next((name for name in names if (path / name).is_file()), ".")


@dataclass(frozen=True, slots=True)
class SampleResult:
    """What was stored of one sample."""

    stored_bytes: int
    """Bytes of its chunks in storage."""
    channels: tuple[dict[str, Any], ...]
    """Figures of each channel's voxels, in the plain form of `Statistics`."""

    @property
    def statistics(self) -> tuple[Statistics, ...]:
        """Figures of each channel's voxels."""
        return tuple(map(Statistics.from_json, self.channels))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SampleResult:
        """Return what is in plain values; raises KeyError, TypeError or ValueError on anything else."""
        found = cls(int(values["stored_bytes"]), tuple(values["channels"]))
        _ = found.statistics
        return found


class Members:
    """The samples of one volume, all of one shape, side by side.

    Parameters
    ----------
    members
        The samples.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._shape = members[0].shape
        self._numbers = {self._key(member.start): number for number, member in enumerate(members)}

    def at(self, voxel: Sequence[int]) -> int:
        """Return the number of the sample that holds a voxel (d, h, w)."""
        return self._numbers[self._key(voxel)]

    def _key(self, voxel: Sequence[int]) -> tuple[int, ...]:
        return tuple(index // extent for index, extent in zip(voxel, self._shape, strict=True))


def only_member(path: Path, manifest: object) -> Mapping[str, Any]:
    """Return what a manifest says of its sample; empty where it is no manifest.

    Raises UsageError when several samples share the volume, which would be converted as one.
    """
    members = manifest.get("members", ()) if isinstance(manifest, Mapping) else ()
    if len(members) > 1:
        raise UsageError(
            f"{path}",
            found=f"a converted volume that {len(members)} samples share",
            expected="one sample",
            remedy="convert the original files again, with the layout that is wanted",
        )
    return members[0] if members else {}
