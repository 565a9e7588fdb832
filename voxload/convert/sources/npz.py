"""Npz: archives of arrays that numpy saved, each array of three or four axes a volume.

Source: numpy.savez and numpy.savez_compressed, which write a zip archive (PKWARE APPNOTE.TXT) of npy files.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast
from zipfile import ZIP_STORED, ZipExtFile, ZipFile, ZipInfo

from voxload.convert.sources.flat import FlatFile, FlatSource, describe_flat
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.npy import NpyHeader, npy_axes, parse_header
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.streams import SCRATCH_BYTES, Stream, StreamSource, decoding, passes
from voxload.convert.sources.zipmember import check_member, first_member, member_offset
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.limits import MEMBERS
from voxload.readers.axes import AxisOrder

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
