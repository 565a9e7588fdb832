"""FortranGrid: grids that Fortran wrote as unformatted records, such as those of LyMAS.

FortranSlices: an array whose slices are records of a Fortran unformatted sequential file. Source: the gfortran
manual, "File format of unformatted sequential files": four bytes before and behind each record say how long it is.

FortranGrid: grids that Fortran wrote as unformatted records, such as those of LyMAS. A header record (dim1, dim2,
dim3, then the box, the redshift and more), then one record for each of dim3 slices, dim1 running fastest. Source: the
page "Mocks" of LyMAS at iap.fr, and the ICs of GRAFIC, which have the same structure and another header.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from voxload.convert.sources.binary.flat import FlatFile, describe_flat, fill_from
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawCube, ReadInto, Source
from voxload.errors import DataError, UsageError
from voxload.files.regular import open_regular
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder, resolve_axes
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume

MARKER_BYTES = 4
"""Bytes of a record marker."""


@dataclass(frozen=True, slots=True)
class FortranSlices:
    """A cube of one record a slice of its slowest axis; the markers of every slice that is read are compared."""

    cube: RawCube
    """What is known of it."""
    file: FlatFile
    """Its array, as if the records from `FlatFile.offset` on had no markers."""
    marker: np.dtype[Any]
    """Type of the markers, with their byte order."""

    def describe(self) -> RawCube:
        """Return what is known of the cube."""
        return self.cube

    @contextmanager
    def open(self) -> Iterator[ReadInto]:
        """Open the file for reading."""
        path = self.file.path
        with translated(f"{path}"), open_regular(path, buffering=0) as file:
            descriptor, compared = file.fileno(), set[int]()

            def fill(content: memoryview, start: int) -> None:
                done = 0
                while done < len(content):
                    number, within = divmod(start + done - self.file.offset, self.record_bytes)
                    if number not in compared:
                        self._compare_markers(descriptor, number)
                        compared.add(number)
                    part = content[done : done + self.record_bytes - within]
                    fill_from(path, descriptor, part, self._position(number) + MARKER_BYTES + within)
                    done += len(part)

            def read_into(box: Box, out: Volume) -> None:
                self.file.read(fill, box, out)

            yield read_into

    @property
    def record_bytes(self) -> int:
        """Bytes of a slice."""
        return prod(self.file.shape[1:]) * self.file.dtype.itemsize

    @property
    def size(self) -> int:
        """Bytes of a whole file."""
        return self._position(self.file.shape[0])

    def _position(self, number: int) -> int:
        """Return where the record of a slice begins, with its first marker."""
        return self.file.offset + number * (self.record_bytes + 2 * MARKER_BYTES)

    def _compare_markers(self, descriptor: int, number: int) -> None:
        first = self._position(number)
        for place in (first, first + MARKER_BYTES + self.record_bytes):
            found = os.pread(descriptor, MARKER_BYTES, place)
            length = int(np.frombuffer(found, self.marker)[0]) if len(found) == MARKER_BYTES else "none"
            if length != self.record_bytes:
                raise DataError(
                    f"{self.file.path}, slice {number}",
                    found=f"record marker {length} at byte {place}",
                    expected=f"{self.record_bytes}",
                    remedy="the file is damaged or cut: copy it again",
                )


_DIMENSIONS_BYTES = 12
_WITH_BOX = (20, 28)
"""Lengths of header records that hold the box and the redshift behind the dimensions; that of GRAFIC has 44."""


class FortranGrid:
    """Grids in Fortran unformatted records; shapes are (dim1, dim2, dim3), of which D is the first and fastest."""

    name = "Fortran unformatted grid"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether a header record of three extents is followed by the marker of a slice of just these."""
        return _header(probe) is not None

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one grid; raises DataError when the file has not the length that its header says."""
        header = _header(probe)
        if header is None:
            raise UsageError(f"{probe.path}", found="another content", expected=self.name)
        order = resolve_axes(f"{probe.path}", ndim=3, given=hints.axes, declared="DHW")
        offset = 2 * MARKER_BYTES + header.length
        stored = AxisOrder(order.axes[::-1])
        file = FlatFile(probe.path, offset, shape=header.extents[::-1], dtype=header.dtype, order=stored)
        cube = replace(describe_flat(file), attributes=_attributes(header))
        source = FortranSlices(cube, file, np.dtype(f"{header.endian}u4"))
        if source.size != probe.size:
            raise DataError(
                f"{probe.path}",
                found=f"{probe.size} bytes",
                expected=f"{source.size} bytes for {header.extents[2]} slices of {header.dtype.str} and their markers",
                remedy="the file is truncated: copy it again",
            )
        return (source,)


@dataclass(frozen=True, slots=True)
class _Header:
    """What the first record and the marker behind it say."""

    endian: str
    """Byte order of everything in the file, as numpy writes it."""
    length: int
    """Bytes of the record."""
    extents: tuple[int, int, int]
    """dim1, dim2, dim3."""
    dtype: np.dtype[Any]
    """Type of the voxels: single or double, as the length of a slice tells."""
    rest: bytes
    """What follows the dimensions."""


def _header(probe: Probe) -> _Header | None:
    """Return the header in one of the two byte orders; both cannot fit, as no length equals its bytes turned round."""
    return next((found for endian in "<>" if (found := _header_in(probe.head, endian))), None)


def _header_in(head: bytes, endian: str) -> _Header | None:
    length = _integer(head, 0, endian)
    stop = MARKER_BYTES + length
    if not _DIMENSIONS_BYTES <= length <= len(head) - 3 * MARKER_BYTES or _integer(head, stop, endian) != length:
        return None
    first, second, third = (_integer(head, MARKER_BYTES * place, endian) for place in (1, 2, 3))
    slice_bytes = _integer(head, stop + MARKER_BYTES, endian)
    if not first * second * third or slice_bytes not in (first * second * 4, first * second * 8):
        return None
    dtype = np.dtype(f"{endian}f{slice_bytes // (first * second)}")
    return _Header(endian, length, (first, second, third), dtype, head[MARKER_BYTES + _DIMENSIONS_BYTES : stop])


def _integer(head: bytes, start: int, endian: str) -> int:
    part = head[start : start + MARKER_BYTES]
    return int(np.frombuffer(part, f"{endian}u4")[0]) if len(part) == MARKER_BYTES else 0


def _attributes(header: _Header) -> dict[str, Any]:
    """Return box and redshift of a header that has them, in the precision of the voxels; none that make no sense."""
    if header.length not in _WITH_BOX or len(header.rest) < 2 * header.dtype.itemsize:
        return {}
    box, redshift = (float(value) for value in np.frombuffer(header.rest, header.dtype, count=2))
    if not (1e-3 < box < 1e6 and 0 <= redshift < 1e4):
        return {}
    return {"box_size": box, "box_size_units": "Mpc/h", "redshift": redshift}
