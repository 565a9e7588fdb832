"""The contract every reader keeps, and the values it speaks in."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

from voxload.display.description import Described, Description
from voxload.display.stored import stored_description
from voxload.errors import DataError, UsageError
from voxload.files.limits import VALUES
from voxload.geometry import Box
from voxload.readers.cfpacking import Packed, Packing

Volume = npt.NDArray[Any]
"""An array of voxels, ``(C, D, H, W)``."""

Vector = npt.NDArray[np.float64]
"""A few numbers that belong to a sample."""

CASTS: tuple[np.dtype[Any], ...] = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
"""Types that voxels can be read as, besides their own."""
_MOST_BYTES = 8
"""Bytes of the largest numbers that torch has types for."""


class Missing(enum.StrEnum):
    """What to do about voxels that the file's own metadata call never written."""

    ERROR = "error"
    """Raise DataError that names file and chunk."""
    FILL = "fill"
    """Give the file's fill value."""

    @classmethod
    def parse(cls, value: str | Missing) -> Missing:
        """Return the policy named by `value`; raises UsageError on an unknown name."""
        try:
            return cls(value)
        except ValueError:
            known = " or ".join(repr(str(member)) for member in cls)
            raise UsageError("missing", found=repr(value), expected=known) from None


@dataclass(frozen=True, slots=True)
class ChecksumSource:
    """Where the checksums of one volume's chunks are kept; they are read when the volume is opened, not before."""

    path: str
    """Parquet file; `voxload.readers.chunks.checksumfile` says what is in it."""
    sample: str
    """Sample id, as in the file."""
    dataset: str
    """Dataset name, as in the file."""


@dataclass(frozen=True, slots=True)
class Window:
    """Where a sample lies in what is stored; spatial, (d, h, w)."""

    start: tuple[int, int, int]
    """First voxel."""
    shape: tuple[int, int, int]
    """Extents."""

    @property
    def box(self) -> Box:
        """Its voxels."""
        return Box(self.start, tuple(lo + extent for lo, extent in zip(self.start, self.shape, strict=True)))


@dataclass(frozen=True, slots=True)
class Lead:
    """Which of the samples and of the time steps that are stored in one array make a sample."""

    sample: int | None = None
    """Index along axis N; None for an array without one."""
    steps: tuple[int, ...] | None = None
    """Indices along axis T, in the order in which they are given; None for an array without one."""

    def __str__(self) -> str:
        parts = [] if self.sample is None else [f"sample {self.sample}"]
        if self.steps:
            first, last = self.steps[0], self.steps[-1]
            parts.append(f"steps {first} to {last}" if len(self.steps) > 1 else f"step {first}")
        return f"[{', '.join(parts)}]" if parts else ""


@dataclass(frozen=True, slots=True)
class Location:
    """Where one volume is stored; hashable, and small enough to send to any process."""

    path: str
    """File or folder, or the URL of an HDF5 file or a Zarr hierarchy."""
    dataset: str = ""
    """Name of the volume inside the file; empty where the file holds one array."""
    axes: str | None = None
    """Order of the axes as stored; None to take it from the file."""
    shape: tuple[int, ...] | None = None
    """Extents as stored: needed for headerless files, checked against the file's own otherwise."""
    dtype: str | None = None
    """numpy type string: needed for headerless files, checked against the file's own otherwise."""
    checksums: ChecksumSource | None = None
    """Checksums that every chunk is compared with when it is read; None to read without."""
    window: Window | None = None
    """The sample's place in what is stored, where several samples share it; None where it is all of it."""
    lead: Lead | None = None
    """Its samples and time steps in an array with axes N or T; None where it is all of them."""
    level: int | None = None
    """Resolution of a multiscale image, 0 the finest; None for that, and for what is none."""
    packed: Packed = Packed.REFUSED
    """What is done about stored numbers that stand for others by CF attributes."""
    also: tuple[Location, ...] = ()
    """Further volumes, each of them whole, whose channels come behind those of this one."""
    within: str | None = ""
    """Folder in which the volume has to lie, links followed, and every file that it names in turn; empty where the
    caller named the volume: then the files that it names lie in its own folder. None allows any place."""

    @property
    def stored(self) -> Location:
        """The volume as stored, of which this may be a part; itself where it is the whole."""
        return self if self.window is None and self.lead is None else replace(self, window=None, lead=None)

    def __str__(self) -> str:
        first = f"{self.path}:{self.dataset}" if self.dataset else self.path
        more = [one.dataset if one.path == self.path and one.dataset else str(one) for one in self.also]
        level = "" if self.level is None else f", level {self.level}"
        return "+".join((first, *more)) + level + (str(self.lead) if self.lead else "")


@dataclass(frozen=True, slots=True, repr=False)
class VolumeInfo(Described):
    """What a reader knows of a volume without reading a voxel."""

    location: Location
    """Where it is stored."""
    format: str
    """Storage format in words, such as ``Zarr v3``."""
    axes: str
    """Order of the axes as stored; see `voxload.readers.axes.AxisOrder`."""
    shape: tuple[int, int, int, int]
    """Extents as read: (C, D, H, W), where C counts the channels of all samples and time steps of the array."""
    dtype: np.dtype[Any]
    """Stored type, with the stored byte order."""
    chunks: tuple[int, int, int, int] | None
    """Smallest unit that can be decoded, in (C, D, H, W); None when storage is contiguous."""
    shards: tuple[int, int, int, int] | None
    """Chunks of this extent share one object, in (C, D, H, W); None when each has its own."""
    codecs: tuple[str, ...]
    """Names of the codecs or filters, in the order of writing."""
    route: str = ""
    """How voxels are read: ``native``, or the library that does it and why."""
    samples: int = 1
    """Extent of axis N."""
    steps: int = 1
    """Extent of axis T."""
    packing: tuple[Packing | None, ...] = ()
    """What the numbers stand for: nothing else where it is empty; one for all channels, or one for each of a step's."""
    levels: tuple[str, ...] = ()
    """Names of the resolutions of the image of which this is one, the finest first; empty where it is none."""

    @property
    def lead(self) -> tuple[int, int, int]:
        """Extents (N, T, C) of what together are the channels of the volume as read."""
        return self.samples, self.steps, self.shape[0] // (self.samples * self.steps)

    @property
    def spatial(self) -> tuple[int, int, int]:
        """Extents (D, H, W)."""
        return self.shape[1:]

    @property
    def whole(self) -> Box:
        """The box of all voxels; its `cost` is what the volume takes in storage, which no reader learns unasked."""
        return Box.whole(self.spatial)

    @property
    def native_dtype(self) -> np.dtype[Any]:
        """Type of the voxels as read: the stored type in this machine's byte order."""
        return self.dtype.newbyteorder("=")

    @property
    def decoded_bytes(self) -> int:
        """Bytes of the whole volume once decoded."""
        return prod(self.shape) * self.dtype.itemsize

    def _described(self) -> Description:
        return stored_description(self)


@dataclass(frozen=True, slots=True)
class ReadCost:
    """What reading a box asks of the storage and of the decoder."""

    chunks: int = 0
    """Chunks touched; 0 when storage is contiguous."""
    stored_bytes: int = 0
    """Bytes asked of the storage: whole chunks as stored, plus shard indices."""
    decoded_bytes: int = 0
    """Bytes those chunks hold once decoded."""

    def __add__(self, other: ReadCost) -> ReadCost:
        return ReadCost(
            self.chunks + other.chunks,
            self.stored_bytes + other.stored_bytes,
            self.decoded_bytes + other.decoded_bytes,
        )


NOTHING = ReadCost()
"""Of what was not asked of the storage."""
UNKNOWN_BYTES = 2**20
"""What an open reader is counted for that has no attribute `held_bytes`, which says about how many it holds. libhdf5
keeps as much for each dataset that is open."""


class Reader(Protocol):
    """Reads boxes of one stored volume.

    A box is spatial, (d, h, w), and stands for all channels; or it has four axes, of which the first is a range of
    channels, as `AxisOrder.box` takes them. Implementations keep these rules; ``tests/laws/reader.py`` checks them:

    1. ``read_into`` fills every voxel of ``out`` or raises; ``out`` is then undefined.
    2. It keeps no reference to ``out`` and does not change its dtype, shape or strides.
    3. It asks the storage only for the chunks, or the rows, that hold voxels of the box.
    4. Every method may be called from many threads at once, but ``close`` only when no other call runs.
    5. Broken data raise DataError, a refusing storage StorageError, a wrong call UsageError; the message
       names the file and what is wrong in it.
    """

    def describe(self) -> VolumeInfo:
        """Return what is known of the volume; costs no I/O."""
        ...

    def cost(self, box: Box) -> ReadCost:
        """Return what reading `box`, which lies inside the volume, costs; may read chunk tables."""
        ...

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box`, which lies inside the volume, into `out` of shape ``(C, d, h, w)``.

        `out` has the stored type in native byte order, or one of `CASTS`: voxels are then rounded to the nearest as
        numpy's ``astype`` does. It may be a strided view.
        """
        ...

    def close(self) -> None:
        """Release files and memory; further calls of ``read_into`` are misuse."""
        ...


def held_bytes(reader: Reader) -> int:
    """Return about how many bytes an open reader holds: what it says in `held_bytes`, or what is taken for granted."""
    said: int = getattr(reader, "held_bytes", UNKNOWN_BYTES)
    return said


class Format(Protocol):
    """One storage format; instances register under the entry-point group ``voxload.readers``."""

    name: str
    """Storage format in words."""

    def claims(self, path: str) -> bool:
        """Tell, by looking at the data, whether `path` is of this format."""
        ...

    def datasets(self, path: str) -> tuple[str, ...]:
        """Return the names of the volumes inside `path`; ``("",)`` where it holds one unnamed array."""
        ...

    def open(self, location: Location, missing: Missing) -> Reader:
        """Open one volume for reading."""
        ...

    def read_vector(self, path: str, name: str) -> Vector:
        """Read the one-dimensional dataset `name` of `path`, such as a sample's targets.

        Raises NotFoundError when there is none, UsageError when the format keeps nothing but one volume.
        """
        ...


def check_box(info: VolumeInfo, box: Box) -> None:
    """Refuse a box that leaves the volume."""
    extents = info.shape if len(box.start) == len(info.shape) else info.spatial
    if len(box.start) != len(extents) or not Box.whole(extents).contains(box):
        raise UsageError(
            f"box {box} of {info.location}", found=f"a volume of {info.spatial}", expected="a box inside it"
        )


def check_out(info: VolumeInfo, box: Box, out: Volume) -> None:
    """Refuse an `out` that cannot take the voxels of `box`."""
    wanted = box.shape if len(box.start) == len(info.shape) else (info.shape[0], *box.shape)
    if out.shape != wanted or (out.dtype != info.native_dtype and out.dtype not in CASTS):
        raise UsageError(
            f"out for box {box} of {info.location}",
            found=f"{out.dtype} {out.shape}",
            expected=f"{info.native_dtype} {wanted}, or {', '.join(str(dtype) for dtype in CASTS)}",
        )
    if not out.flags.writeable:
        raise UsageError(f"out for box {box} of {info.location}", found="a read-only array", expected="a writable one")


def check_request(info: VolumeInfo, box: Box, out: Volume) -> None:
    """Refuse a box outside the volume, or an `out` that does not fit it; every reader calls this first."""
    check_box(info, box)
    check_out(info, box, out)


def copy_cast(out: Volume, voxels: Volume) -> None:
    """Copy what a library read, which knows only the stored type, into an `out` of it or of one of `CASTS`."""
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large becomes infinite
        np.copyto(out, voxels, casting="unsafe")


def closed(info: VolumeInfo) -> UsageError:
    """Return the error of reading after `close`."""
    return UsageError(f"{info.location}", found="a closed reader", expected="an open one")


def parse_dtype(location: Location, text: str) -> np.dtype[Any]:
    """Return the type that a location names; raises UsageError when numpy knows none of that name."""
    try:
        return np.dtype(text)
    except TypeError:
        raise UsageError(f"{location}", found=f"dtype {text!r}", expected="a numpy type such as '<i2'") from None


def _type_remedy(dtype: np.dtype[Any]) -> str:
    """Return what to do about voxels of a type that no tensor has."""
    if dtype.kind == "f":
        return "store them as float64: x87's extended and quadruple floats are the types of some processors only"
    if dtype.kind == "c":
        return "store real and imaginary parts as two channels"
    if dtype.kind == "V" and dtype.names is None and dtype.subdtype is None:
        return "if they are bfloat16, float8 or int4 of ml_dtypes, which files know as bytes, store them as float32"
    if dtype.names is not None:
        return "store each field as a volume of its own"
    return "store them as numbers, one a voxel"


def check_volume(info: VolumeInfo) -> None:
    """Refuse a volume whose type or extents are no voxels, or not what its catalogue says."""
    location = info.location
    if info.dtype.kind not in "biuf" or info.dtype.itemsize > _MOST_BYTES:
        raise UsageError(
            f"{location}",
            found=f"dtype {info.dtype}",
            expected="an integer or floating type of 1 to 8 bytes, which torch can hold",
            remedy=_type_remedy(info.dtype),
        )
    if min(info.shape) < 1:
        remedy = "check that it is the right file, or convert it again"
        raise DataError(f"{location}", found=f"shape {info.shape}", expected="extents of 1 or more", remedy=remedy)
    extents = (*info.lead, *info.spatial)
    stored = tuple(extents["NTCDHW".index(axis)] for axis in info.axes)
    if location.shape is not None and tuple(location.shape) != stored:
        raise DataError(
            f"{location}",
            found=f"shape {stored}",
            expected=f"{tuple(location.shape)} as catalogued",
            remedy="the file changed since: catalogue it again",
        )
    if location.dtype is not None and parse_dtype(location, location.dtype).newbyteorder("=") != info.native_dtype:
        raise DataError(
            f"{location}",
            found=f"dtype {info.dtype}",
            expected=f"{location.dtype} as catalogued",
            remedy="the file changed since: catalogue it again",
        )


def as_vector(subject: str, stored: Any) -> Vector:
    """Read a stored array of h5py or zarr as a vector of float64; a scalar counts as one value.

    Raises, before a value is read, UsageError when it has more than one axis or holds no numbers, DataError when it has
    more values than any targets.
    """
    if stored.ndim > 1 or stored.dtype.kind not in "biuf":
        raise UsageError(subject, found=f"{stored.dtype} of shape {stored.shape}", expected="one axis of numbers")
    VALUES.check(subject, prod(stored.shape), "a vector")
    return np.atleast_1d(np.asarray(stored[...])).astype(np.float64)


def refuse_vector(path: str, name: str) -> Vector:
    """Raise the error of formats whose files hold one volume and nothing else."""
    raise UsageError(
        f"{path}",
        found=f"a file of one array, so no {name!r}",
        remedy="keep the targets in a catalogue: voxload convert writes one",
    )
