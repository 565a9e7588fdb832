"""MetaImage: images of ITK, .mha with the voxels behind the header and .mhd with the voxels in a file beside it.

The first of DimSize runs fastest, so three are W, H and D; several channels of a voxel lie side by side. Source:
MetaIO documentation, itk.org/Wiki/MetaIO/Documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nan, prod
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.affine import Affine
from voxload.convert.sources.binary.flat import FlatFile
from voxload.convert.sources.binary.stored import InflatedFile
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.medicine.images import medical_source
from voxload.convert.sources.probe import Probe, header_lines
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.readers.axes import resolve_axes
from voxload.readers.faults import translated

_LINE = re.compile(r"\s*(\w+)\s*=\s*(.*?)\s*")
_SPATIAL = 3
_LAST = "ElementDataFile"
_NEEDED = ("NDims", "DimSize", "ElementType")
_TYPES = {
    "MET_CHAR": "i1",
    "MET_UCHAR": "u1",
    "MET_SHORT": "i2",
    "MET_USHORT": "u2",
    "MET_INT": "i4",
    "MET_UINT": "u4",
    "MET_LONG": "i4",
    "MET_ULONG": "u4",
    "MET_LONG_LONG": "i8",
    "MET_ULONG_LONG": "u8",
    "MET_FLOAT": "f4",
    "MET_DOUBLE": "f8",
}
"""Types by name; MET_LONG has 4 bytes everywhere. Source: metaTypes.h of MetaIO."""
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_MSB = ("BinaryDataByteOrderMSB", "ElementByteOrderMSB")


@dataclass(frozen=True, slots=True)
class MetaHeader:
    """One image."""

    length: int
    """Bytes of the header."""
    shape: tuple[int, ...]
    """Extents, slowest axis first, the channels last where there are several."""
    channels: int
    """Numbers of one voxel."""
    dtype: np.dtype[Any]
    """Stored type, with the stored byte order."""
    is_compressed: bool
    """Whether the voxels are a zlib stream."""
    header_size: int
    """Bytes before the voxels in a file of their own; -1 to count from its end."""
    data_file: str
    """LOCAL, or the name of the file of the voxels."""
    attributes: dict[str, Any]
    """Spacing along D, H and W, and place and direction in the file's own order of axes."""
    affine: Affine | None
    """Where the voxels lie; None where the header names neither origin nor directions."""

    @property
    def spacing(self) -> list[float]:
        """Distance in mm between voxels along the axes of `shape`; NaN where nothing says, infinite along channels."""
        known = self.attributes.get("spacing", ())
        found = list(known) if len(known) == _SPATIAL else [nan] * _SPATIAL
        ranks = len(self.shape) - (self.channels > 1)
        return [*[inf] * (ranks - _SPATIAL), *found, *[inf] * (self.channels > 1)]


def has_meta_header(head: bytes) -> bool:
    """Tell whether the first bytes of a file are lines of MetaIO that describe an image."""
    lines = [_LINE.fullmatch(line.decode("latin-1")) for line in head.splitlines()[:1]]
    names = set(re.findall(rb"^\s*(\w+)\s*=", head, re.MULTILINE))
    return all(lines) and {name.encode() for name in _NEEDED} <= names


def read_meta_header(path: Path) -> MetaHeader:
    """Return the header of a file; raises DataError when it is damaged, UsageError on what is no plain image."""
    lines, length = header_lines(path, lambda line: line.lstrip().startswith(_LAST.encode()))
    fields = _fields(path, lines)
    _check_plain(path, fields)
    with translated(f"{path}"):
        channels = int(fields.get("ElementNumberOfChannels", "1"))
        sizes = [int(extent) for extent in fields["DimSize"].split()]
        if len(sizes) != int(fields["NDims"]) or channels < 1:
            raise DataError(
                f"{path}",
                found=f"DimSize {fields['DimSize']}, {channels} channels",
                expected=f"{fields['NDims']} extents, and 1 or more channels",
            )
        attributes = _attributes(fields)
        if len(sizes) == 4 and sizes[-1] == 1:
            sizes.pop()
        return MetaHeader(
            length,
            shape=(*sizes[::-1], channels) if channels > 1 else tuple(sizes[::-1]),
            channels=channels,
            dtype=_dtype(path, fields),
            is_compressed=_flag(path, fields, "CompressedData"),
            header_size=int(fields.get("HeaderSize", "0")),
            data_file=fields[_LAST],
            attributes=attributes,
            affine=_affine(attributes),
        )


def _fields(path: Path, lines: list[bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        text = line.decode("latin-1").rstrip("\r\n")
        match = _LINE.fullmatch(text)
        if match is None or match[1] in found:
            raise DataError(f"{path}", found=f"line {text[:80]!r}", expected="each of NAME = VALUE once")
        found[match[1]] = match[2]
    missing = [name for name in (*_NEEDED, _LAST) if not found.get(name)]
    if missing:
        raise DataError(f"{path}", found=f"no {missing[0]}", expected="a complete MetaImage header")
    return found


def _check_plain(path: Path, fields: Mapping[str, str]) -> None:
    """Refuse what is no image of bytes, and intensities that are not the stored numbers."""
    wanted = {
        "ObjectType": ("Image",),
        "BinaryData": ("True", "true", "1"),
        "ElementToIntensityFunctionSlope": ("1", "1.0"),
        "ElementToIntensityFunctionOffset": ("0", "0.0"),
    }
    for name, values in wanted.items():
        if fields.get(name, values[0]) not in values:
            raise UsageError(
                f"{path}", found=f"{name} = {fields[name]}", expected=f"{name} = {values[0]}", remedy="save it again"
            )


def _dtype(path: Path, fields: Mapping[str, str]) -> np.dtype[Any]:
    if fields["ElementType"] not in _TYPES:
        raise UsageError(
            f"{path}", found=f"ElementType {fields['ElementType']}", expected=f"one of {', '.join(_TYPES)}"
        )
    stored = np.dtype(_TYPES[fields["ElementType"]])
    orders = {_flag(path, fields, name) for name in _MSB if name in fields}
    if stored.itemsize > 1 and len(orders) != 1:
        raise DataError(
            f"{path}",
            found="two byte orders" if orders else "no byte order",
            expected="one",
            remedy=f"add the line {_MSB[0]} = False for little-endian or True for big-endian",
        )
    return stored.newbyteorder(">" if True in orders else "<")


def _flag(path: Path, fields: Mapping[str, str], name: str) -> bool:
    text = fields.get(name, "False").lower()
    if text not in _BOOLEANS:
        raise DataError(f"{path}", found=f"{name} = {fields[name]}", expected="True or False")
    return _BOOLEANS[text]


def _attributes(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the geometry under one name each, whichever of its synonyms the writer chose."""
    names = {
        "origin": ("Offset", "Position", "Origin"),
        "direction": ("TransformMatrix", "Orientation", "Rotation"),
        "element_spacing": ("ElementSpacing", "ElementSize"),
    }
    found: dict[str, Any] = {}
    for name, synonyms in names.items():
        text = next((fields[synonym] for synonym in synonyms if synonym in fields), None)
        if text is not None:
            found[name] = [float(value) for value in text.split()]
    spacing = found.pop("element_spacing", None)
    if spacing is not None:
        found["spacing"] = spacing[2::-1]
    if "AnatomicalOrientation" in fields:
        found["orientation"] = fields["AnatomicalOrientation"]
    return found


def _affine(attributes: Mapping[str, Any]) -> Affine | None:
    """Return where the voxels lie. What one of origin, directions and spacing lacks has ITK's default.

    A row of the matrix is the direction of an axis. A fourth axis has no place.
    """
    if not {"origin", "direction"} & set(attributes):
        return None
    origin = np.array(attributes.get("origin", (0.0,) * _SPATIAL))
    flat = np.array(attributes.get("direction", np.eye(len(origin)).ravel()))
    rank = len(origin)
    spacing = np.array(attributes.get("spacing", (1.0,) * _SPATIAL))[::-1]
    if rank < _SPATIAL or len(flat) != rank**2 or len(spacing) != _SPATIAL:
        return None
    steps = flat.reshape(rank, rank)[:_SPATIAL, :_SPATIAL] * spacing[:, None]
    return Affine.of("left-posterior-superior", steps, origin[:_SPATIAL])


_AT_THE_END = -1
"""HeaderSize of voxels that are the last bytes of their file."""


class MetaImage:
    """MetaImage files, raw or in zlib, attached to their header or not."""

    name = "MetaImage"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether the file begins with lines of MetaIO, ``NDims``, ``DimSize`` and ``ElementType`` among them."""
        return has_meta_header(probe.head)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one image.

        Raises
        ------
        UsageError
            When the voxels are stored as text or in several files, or four axes have no names.
        NotFoundError
            When the file of the voxels is not there.
        DataError
            When the header is damaged, or an uncompressed file has not the length that it says.
        """
        path = probe.path
        header = read_meta_header(path)
        declared = "DHWC" if header.channels > 1 and len(header.shape) == 4 else None
        order = resolve_axes(f"{path}", ndim=len(header.shape), given=hints.axes, declared=declared)
        data, offset = _data(path, header)
        facts: dict[str, Any] = {"shape": header.shape, "dtype": header.dtype, "order": order}
        if header.is_compressed:
            file: FlatFile | InflatedFile = InflatedFile(data, offset, 0, **facts)
        else:
            file = FlatFile(data, offset, **facts)
        spacing = header.spacing
        return (medical_source(path, file, attributes=header.attributes, affine=header.affine, spacing=spacing),)


def _data(path: Path, header: MetaHeader) -> tuple[Path, int]:
    """Return the file of the voxels and the bytes before them, or before their stream."""
    named, skipped = header.data_file, header.header_size
    if named.split()[0] == "LIST" or "%" in named:
        raise UsageError(
            f"{path}", found=f"ElementDataFile = {named}, several files", expected="one", remedy="save it as one file"
        )
    is_local = named.upper() == "LOCAL"
    if skipped < _AT_THE_END or (is_local and skipped > 0) or (header.is_compressed and skipped < 0):
        raise UsageError(
            f"{path}", found=f"HeaderSize = {skipped} for {named}", expected="a place that fits", remedy="save it again"
        )
    data, before = (path, header.length) if is_local else (path.parent / named, 0)
    if not data.is_file():
        raise NotFoundError(
            f"{path}", found=f"no {named} beside it", expected="the file of its voxels", remedy="copy it there"
        )
    if skipped != _AT_THE_END:
        return data, before + skipped
    with translated(f"{data}"):
        size = data.stat().st_size
    start = size - prod(header.shape) * header.dtype.itemsize
    if start < before:
        raise DataError(
            f"{data}", found=f"{size} bytes", expected=f"{size - start + before} or more", remedy="copy it again"
        )
    return data, start
