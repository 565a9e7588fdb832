"""NRRD: images of teem, 3D Slicer and others, with the header in the file of the voxels or beside it.

The first of the sizes runs fastest, so three sizes are W, H and D; of four, the kinds or the space directions say which
one holds the channels. Headers are read by pynrrd, voxels by position. Source: Definition of NRRD File Format,
teem.sourceforge.net/nrrd/format.html.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nan, prod
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.affine import Affine, millimetres
from voxload.convert.sources.binary.flat import FlatFile
from voxload.convert.sources.binary.stored import InflatedFile
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.libraries import library
from voxload.convert.sources.medicine.images import medical_source
from voxload.convert.sources.probe import Probe, header_lines
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.readers.axes import resolve_axes
from voxload.readers.faults import translated

_NUMBERS = {"signed char": "i1", "uchar": "u1", "unsigned char": "u1", "float": "f4", "double": "f8"}
_INTEGERS = {"short": "2", "int": "4", "longlong": "8", "long long": "8"}
_ORDERS = {"little": "<", "big": ">"}
_ENCODINGS = {"raw": "raw", "gzip": "gzip", "gz": "gzip"}
_SPATIAL_KINDS = ("domain", "space")


@dataclass(frozen=True, slots=True)
class NrrdHeader:
    """One image."""

    fields: Mapping[str, Any]
    """Every field, as pynrrd has it."""
    length: int
    """Bytes of the header, the blank line behind it included."""
    shape: tuple[int, ...]
    """Extents, slowest axis first."""
    dtype: np.dtype[Any]
    """Stored type, with the stored byte order."""
    encoding: str
    """``raw`` or ``gzip``."""

    def field(self, *names: str, default: Any) -> Any:
        """Return the first of the fields `names` that is there."""
        return next((self.fields[name] for name in names if name in self.fields), default)

    @property
    def data_bytes(self) -> int:
        """Length of the voxels, decoded."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def kinds(self) -> list[str]:
        """Kind of each axis in the file's own order, the fastest first; empty where it names none."""
        return [str(kind) for kind in self.field("kinds", default=())]

    @property
    def is_spatial(self) -> list[bool]:
        """Whether each axis is one of space, slowest first; all of them where nothing says so."""
        directions = self.field("space directions", default=None)
        if self.kinds:
            spatial = [kind.lower() in _SPATIAL_KINDS for kind in self.kinds]
        elif directions is not None:
            spatial = [bool(np.isfinite(row).all()) for row in directions]
        else:
            spatial = [True] * len(self.shape)
        return spatial[::-1]

    @property
    def spacing(self) -> list[float]:
        """The same in mm, infinite along an axis that is none of space."""
        directions, units = self.field("space directions", default=None), self.field("units", default=None)
        if directions is not None:
            units = [(self.field("space units", default=None) or ["mm"])[0]] * len(self.shape)
        scales = [millimetres(str(unit)) for unit in units or ["mm"] * len(self.shape)][::-1]
        scales = scales if len(scales) == len(self.shape) else [nan] * len(self.shape)
        return [
            length * scale if is_spatial else inf
            for length, scale, is_spatial in zip(self.spacings, scales, self.is_spatial, strict=True)
        ]

    @property
    def spacings(self) -> list[float]:
        """Distance between voxels along each axis, slowest first; NaN where nothing says."""
        directions = self.field("space directions", default=None)
        given = self.field("spacings", default=None)
        if directions is not None:
            lengths = [float(np.linalg.norm(row)) for row in directions]
        else:
            lengths = [float(width) for width in given] if given is not None else [np.nan] * len(self.shape)
        return lengths[::-1]


def read_nrrd_header(path: Path) -> NrrdHeader:
    """Return the header of a file; raises DataError when it is damaged, UsageError on an encoding that is no bytes."""
    nrrd = library("nrrd", f"{path}")
    lines, length = header_lines(path, lambda line: not line.strip())
    try:
        with translated(f"{path}"):
            fields = nrrd.read_header(lines)
            missing = [name for name in ("dimension", "type", "sizes", "encoding") if name not in fields]
            if missing:
                raise DataError(f"{path}", found=f"no field {missing[0]!r}", expected="a complete NRRD header")
            sizes = tuple(int(extent) for extent in fields["sizes"])
            _check_axes(path, fields, sizes)
            return NrrdHeader(fields, length, sizes[::-1], _dtype(path, fields), _encoding(path, fields))
    except nrrd.NRRDError as error:
        raise DataError(f"{path}", found=str(error), expected="an NRRD header, version 1 to 5") from error


def _check_axes(path: Path, fields: Mapping[str, Any], sizes: tuple[int, ...]) -> None:
    """Refuse a field that has a value for each axis, but not as many as there are axes."""
    for name in ("sizes", "kinds", "space directions", "spacings"):
        if name in fields and len(fields[name]) != fields["dimension"]:
            raise DataError(
                f"{path}", found=f"{len(fields[name])} {name}", expected=f"{fields['dimension']}, one for each axis"
            )
    if len(sizes) not in (3, 4):
        raise UsageError(f"{path}", found=f"{len(sizes)} axes", expected="three (D, H, W), or four with channels")


def _dtype(path: Path, fields: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the stored type. Source: the format's definition, field ``type``."""
    name = str(fields["type"]).removesuffix("_t")
    if name in _NUMBERS:
        code = _NUMBERS[name]
    elif name.lstrip("u") in ("int8", "int16", "int32", "int64"):
        code = np.dtype(name).str[1:]
    else:
        is_unsigned = name.startswith(("unsigned ", "u"))
        plain = name.removeprefix("unsigned ").removeprefix("signed ").removeprefix("u")
        plain = plain if plain in _INTEGERS else plain.removesuffix(" int")
        if plain not in _INTEGERS:
            raise UsageError(f"{path}", found=f"type {name!r}", expected="integers or floats of 1 to 8 bytes a voxel")
        code = ("u" if is_unsigned else "i") + _INTEGERS[plain]
    if code.endswith("1"):
        return np.dtype(code)
    if fields.get("endian") not in _ORDERS:
        raise DataError(f"{path}", found=f"endian {fields.get('endian')!r}", expected="little or big")
    return np.dtype(_ORDERS[fields["endian"]] + code)


def _encoding(path: Path, fields: Mapping[str, Any]) -> str:
    encoding = str(fields["encoding"]).lower()
    skipped = fields.get("line skip", fields.get("lineskip", 0))
    if encoding not in _ENCODINGS or skipped:
        raise UsageError(
            f"{path}",
            found=f"line skip {skipped}" if skipped else f"encoding {encoding!r}",
            expected="voxels as bytes, raw or in gzip, behind the header or at the beginning of their own file",
            remedy="save it again with encoding raw or gzip",
        )
    return _ENCODINGS[encoding]


_MAGIC = b"NRRD000"
_DATA_FILES = ("data file", "datafile")


class Nrrd:
    """NRRD images, raw or in gzip, attached to their header or not."""

    name = "NRRD"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether the file begins with ``NRRD000`` and the digit of any version."""
        return probe.head.startswith(_MAGIC) and probe.head[7:8].isdigit() and probe.head[8:9] in (b"\n", b"\r")

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one image.

        Raises
        ------
        UsageError
            When the voxels are stored as text or in several files, or nothing says which of four axes has the channels.
        NotFoundError
            When the file of the voxels is not there.
        DataError
            When the header is damaged, or a raw file has not the length that it says.
        """
        path = probe.path
        header = read_nrrd_header(path)
        order = resolve_axes(
            f"{path}", ndim=len(header.shape), given=hints.axes, declared=_declared(path, header, hints)
        )
        data, offset = _data(path, header)
        skipped = int(header.field("byte skip", "byteskip", default=0))
        facts: dict[str, Any] = {"shape": header.shape, "dtype": header.dtype, "order": order}
        if header.encoding == "gzip":
            if skipped < 0:
                raise UsageError(f"{path}", found=f"byte skip {skipped} of a gzip stream", expected="0 or more")
            file: FlatFile | InflatedFile = InflatedFile(data, offset, skipped, **facts)
        else:
            file = FlatFile(data, _raw_offset(data, header, offset=offset, skipped=skipped), **facts)
        placed: dict[str, Any] = {"affine": _affine(header), "spacing": header.spacing}
        return (medical_source(path, file, attributes=_attributes(header, order.axes), **placed),)


def _declared(path: Path, header: NrrdHeader, hints: Hints) -> str | None:
    """Return the axes, slowest first, where exactly one is not of space; raises UsageError on a list of images."""
    others = [place for place, is_spatial in enumerate(header.is_spatial) if not is_spatial]
    if hints.axes is None and len(header.shape) == 3 and others:
        raise UsageError(
            f"{path}",
            found=f"three axes of kinds {' '.join(header.kinds)}, slowest last",
            expected="three axes of space",
            remedy="name them with --axes DHW if they are",
        )
    if len(header.shape) != 4 or len(others) != 1:
        return None
    letters = iter("DHW")
    return "".join("C" if place in others else next(letters) for place in range(4))


def _data(path: Path, header: NrrdHeader) -> tuple[Path, int]:
    """Return the file of the voxels and the bytes before them, or before their stream."""
    named = header.field(*_DATA_FILES, default="")
    if not named:
        return path, header.length
    if named.startswith("LIST") or "%" in named:
        raise UsageError(
            f"{path}", found=f"data file {named!r}, several files", expected="one", remedy="save it as one file"
        )
    data = path.parent / named
    if not data.is_file():
        raise NotFoundError(
            f"{path}", found=f"no {named} beside it", expected="the file of its voxels", remedy="copy it there"
        )
    return data, 0


def _raw_offset(data: Path, header: NrrdHeader, *, offset: int, skipped: int) -> int:
    """Return the first byte of raw voxels; a byte skip of -1 counts them from the end of the file."""
    if skipped >= 0:
        return offset + skipped
    with translated(f"{data}"):
        size = data.stat().st_size
    start = size - header.data_bytes
    if skipped != -1 or start < offset:
        raise DataError(
            f"{data}", found=f"{size} bytes, byte skip {skipped}", expected=f"{offset + header.data_bytes} or more, -1"
        )
    return start


def _attributes(header: NrrdHeader, axes: str) -> dict[str, Any]:
    """Return spacing along D, H and W and what the file says of its space, in the order of the file's own axes."""
    found: dict[str, Any] = {}
    spacings = dict(zip(axes, header.spacings, strict=True))
    spacing = [spacings[axis] for axis in "DHW"]
    if np.isfinite(spacing).all():
        found["spacing"] = spacing
    for name in ("space", "kinds", "units", "space units", "labels", "content", "sample units"):
        if value := header.field(name, default=None):
            found[name.replace(" ", "_")] = value
    for name in ("space origin", "space directions", "measurement frame"):
        value = header.field(name, default=None)
        if value is not None:
            rows = np.asarray(value, dtype=np.float64)
            plain = [row.tolist() if np.isfinite(row).all() else None for row in np.atleast_2d(rows)]
            found[name.replace(" ", "_")] = plain if rows.ndim > 1 else plain[0]
    return found


def _affine(header: NrrdHeader) -> Affine | None:
    """Return where the voxels lie in the file's space; None where it names no directions or no origin."""
    directions, origin = header.field("space directions", default=None), header.field("space origin", default=None)
    if directions is None or origin is None:
        return None
    steps = [row for row, is_spatial in zip(directions, reversed(header.is_spatial), strict=True) if is_spatial]
    units = header.field("space units", default=None) or ["mm"]
    return Affine.of(str(header.field("space", default="no space")), steps, origin, unit=str(units[0]))
