"""FortranSlices: an array whose slices are records of a Fortran unformatted sequential file.

Source: the gfortran manual, "File format of unformatted sequential files": four bytes before and behind each record
say how long it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from voxload.convert.sources.flat import FlatFile, fill_from
from voxload.convert.sources.protocol import RawCube, ReadInto
from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume
from voxload.regular import open_regular

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
