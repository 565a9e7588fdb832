"""Arrays that numpy saved: one in a .npy file, several in the zip archive of a .npz file.

Members of a zip archive that are stored plainly: where their bytes lie, and whether their checksum fits. Source:
PKWARE APPNOTE.TXT, section 4.3.7, the local file header.

Npz: archives of arrays that numpy saved, each array of three or four axes a volume. Source: numpy.savez and
numpy.savez_compressed, which write a zip archive (PKWARE APPNOTE.TXT) of npy files.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, Any, cast
from zipfile import ZIP_STORED, ZipExtFile, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy_format

from voxload.convert.sources.binary.flat import FlatFile, FlatSource, describe_flat, stored_file
from voxload.convert.sources.binary.streams import PIECE_BYTES, SCRATCH_BYTES, Stream, StreamSource, decoding, passes
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.files.limits import MEMBERS
from voxload.files.regular import open_regular
from voxload.readers.axes import AxisOrder, resolve_axes
from voxload.readers.faults import translated

_SIGNATURE = b"PK\x03\x04"
_LOCAL = struct.Struct("<4s22xHH")


def first_member(probe: Probe) -> str:
    """Return the name of the first member of a zip archive; empty for other files."""
    if not probe.head.startswith(_SIGNATURE) or len(probe.head) < _LOCAL.size:
        return ""
    _, length, _ = _LOCAL.unpack_from(probe.head)
    return probe.head[_LOCAL.size : _LOCAL.size + length].decode("utf-8", "replace")


def member_offset(path: Path, info: ZipInfo) -> int:
    """Return where in the file the bytes of a plain member begin; raises DataError when its header is not there."""
    with translated(f"{path}"), open_regular(path) as file:
        file.seek(info.header_offset)
        head = file.read(_LOCAL.size)
    if len(head) < _LOCAL.size or not head.startswith(_SIGNATURE):
        raise DataError(f"{path}", found=f"no header of {info.filename!r} at byte {info.header_offset}", expected="one")
    _, name_length, extra_length = _LOCAL.unpack(head)
    return info.header_offset + _LOCAL.size + int(name_length) + int(extra_length)


def check_member(path: Path, info: ZipInfo, start: int) -> None:
    """Read a plain member and compare its CRC-32; raises DataError when it does not fit."""
    crc, left = 0, info.file_size
    with translated(f"{path}"), open_regular(path) as file:
        file.seek(start)
        while piece := file.read(min(PIECE_BYTES, left)):
            crc, left = zlib.crc32(piece, crc), left - len(piece)
    if crc != info.CRC:
        raise DataError(
            f"{path}, member {info.filename!r}",
            found=f"data with CRC-32 {crc:08x}",
            expected=f"{info.CRC:08x}, as the archive says",
            remedy="the archive is damaged: copy it again",
        )


class Npy:
    """Arrays that numpy saved: a three-axis (D, H, W) cube, or a four-axis one whose axes the caller names."""

    name = "npy"
    is_generic = True

    def claims(self, probe: Probe) -> bool:
        """Tell whether the file begins with numpy's magic string."""
        return is_npy(probe)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube.

        Raises
        ------
        UsageError
            When four axes have no names, or the type is no number.
        DataError
            When the header is damaged or the file's length does not fit it.
        """
        file = npy_file(probe.path, hints.axes)
        return (FlatSource(describe_flat(file), file),)


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What the header of an npy file says."""

    shape: tuple[int, ...]
    """Extents, as ``numpy.load(path).shape`` shows them."""
    is_fortran: bool
    """Whether the first index runs fastest."""
    dtype: np.dtype[Any]
    """Stored type."""
    length: int
    """Bytes of the header, which the first voxel follows."""

    @property
    def size(self) -> int:
        """Bytes of header and array."""
        return self.length + prod(self.shape) * self.dtype.itemsize


def is_npy(probe: Probe) -> bool:
    """Tell whether a file begins with numpy's magic string."""
    return probe.head.startswith(npy_format.MAGIC_PREFIX)


def npy_header(path: Path) -> NpyHeader:
    """Return the header of a file; raises DataError when it is damaged."""
    with translated(f"{path}"), open_regular(path) as file:
        return parse_header(f"{path}", file)


def parse_header(subject: str, file: IO[bytes]) -> NpyHeader:
    """Return the header that a stream stands before. Source: NEP 1, versions 1.0 and 2.0."""
    readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    version = npy_format.read_magic(file)
    if version not in readers:
        raise DataError(subject, found=f"npy version {version}", expected="an array of numbers, version 1 or 2")
    shape, is_fortran, dtype = readers[version](file)
    return NpyHeader(tuple(shape), bool(is_fortran), dtype, file.tell())


def npy_file(path: Path, axes: str | None = None) -> FlatFile:
    """Return the cube in a file, checked: its axes, its type and the file's length."""
    header = npy_header(path)
    order = npy_axes(f"{path}", header, axes)
    return stored_file(
        path, header.length, shape=header.shape, dtype=header.dtype, order=order, is_fortran=header.is_fortran
    )


def npy_axes(subject: str, header: NpyHeader, axes: str | None) -> AxisOrder:
    """Return the axes of an array as the caller names them, (D, H, W) for three without names."""
    if len(header.shape) == 4 and axes is None:
        raise UsageError(
            subject,
            found=f"four axes without names, shape {header.shape}",
            expected="to know which one holds the channels",
            remedy="add --axes CDHW for channels first or --axes DHWC for channels last",
        )
    return resolve_axes(subject, ndim=len(header.shape), given=axes, declared=None)


_SUFFIX = ".npy"


class Npz:
    """Archives of numpy: what is stored plainly is read by position, what is deflated as a stream.

    zip keeps a CRC-32 of each array: of a plain one it is compared before the first voxel is given, of a deflated one
    when the last is.
    """

    name = "npz"
    is_generic = True

    def claims(self, probe: Probe) -> bool:
        """Tell whether the first member of a zip archive is an npy file."""
        return first_member(probe).endswith(_SUFFIX)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return one cube for each array of three or four axes, or for those that are asked for.

        Raises
        ------
        UsageError
            When no array has three or four axes, or four without names.
        NotFoundError
            When a dataset that is asked for is not there.
        DataError
            When the archive is damaged.
        """
        headers = read_headers(probe.path)
        wanted = [name for name, (_, header) in headers.items() if len(header.shape) in (3, 4)]
        if hints.datasets:
            missing = sorted(set(hints.datasets) - set(headers))
            if missing:
                raise NotFoundError(f"{probe.path}", found=f"no {missing[0]!r}", expected=_listed(headers))
            wanted = [name for name in headers if name in hints.datasets]
        if not wanted:
            raise UsageError(f"{probe.path}", found=_listed(headers), expected="an array of three or four axes")
        return tuple(_source(probe.path, name, *headers[name], axes=hints.axes) for name in wanted)


def read_headers(path: Path) -> dict[str, tuple[ZipInfo, NpyHeader]]:
    """Return the arrays of an archive by name, in its order; raises DataError when it is damaged."""
    found: dict[str, tuple[ZipInfo, NpyHeader]] = {}
    with decoding(f"{path}"), ZipFile(path) as archive:
        MEMBERS.check(f"{path}", len(archive.infolist()), "an archive")
        for info in archive.infolist():
            if not info.filename.endswith(_SUFFIX):
                continue
            name = info.filename.removesuffix(_SUFFIX)
            subject = f"{path}, array {name!r}"
            if name in found:
                raise DataError(subject, found="two members of this name", expected="one")
            with decoding(subject), archive.open(info) as member:
                header = parse_header(subject, member)
            if header.size != info.file_size:
                raise DataError(
                    subject,
                    found=f"{info.file_size} bytes",
                    expected=f"{header.size} bytes for {header.dtype.str} {header.shape}",
                )
            found[name] = info, header
    return found


def _source(path: Path, name: str, info: ZipInfo, header: NpyHeader, *, axes: str | None) -> Source:
    order, shape = npy_axes(f"{path}, array {name!r}", header, axes), header.shape
    if header.is_fortran:
        order, shape = AxisOrder(order.axes[::-1]), shape[::-1]
    is_plain = info.compress_type == ZIP_STORED
    start = member_offset(path, info) if is_plain else 0
    file = FlatFile(path, start + header.length, shape=shape, dtype=header.dtype, order=order)
    cube = replace(describe_flat(file), dataset=name)
    if is_plain:
        return FlatSource(cube, file, partial(check_member, path, info, start))
    stream = Stream(partial(_open_member, path, info.filename), end=info.file_size)
    return StreamSource(replace(cube, is_sequential=True, scratch_bytes=passes(file) * SCRATCH_BYTES), file, stream)


def _open_member(path: Path, name: str) -> ZipExtFile:
    """Open a member, which compares its own checksum at its last byte; closing it closes the archive."""
    with ZipFile(path) as archive:
        return cast("ZipExtFile", archive.open(name))


def _listed(headers: dict[str, tuple[ZipInfo, NpyHeader]]) -> str:
    return ", ".join(f"{name} {header.shape}" for name, (_, header) in headers.items()) or "no array"
