"""NrrdHeader: what the header of an NRRD file says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.libraries import library
from voxload.convert.sources.textheader import header_lines
from voxload.errors import DataError, UsageError
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
