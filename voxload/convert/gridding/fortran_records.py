"""RecordFile: Fortran unformatted records, each between two markers of 4 bytes that hold its length.

Gadget writes one record a block, whatever its length, and lets the marker overflow: of a block of 4 GiB or more it
holds the length modulo 2^32, so that lengths are checked against what the header leads to expect.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from voxload.convert.gridding.particles import read_at
from voxload.errors import DataError

MARKER_BYTES = 4
_WORD = 2**32


@dataclass(frozen=True, slots=True)
class Record:
    """Where the content of a record lies."""

    offset: int
    """Bytes before it."""
    length: int
    """Its bytes."""

    @property
    def stop(self) -> int:
        """Offset of the next record."""
        return self.offset + self.length + MARKER_BYTES


@dataclass(frozen=True, slots=True)
class RecordFile:
    """An open file of records."""

    path: Path
    """The file."""
    descriptor: int
    """Its descriptor."""
    byte_order: str
    """``<`` or ``>``."""

    def read(self, offset: int, length: int) -> bytearray:
        """Return bytes; raises DataError where the file ends before."""
        return read_at(self.path, self.descriptor, offset=offset, length=length)

    def size(self) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(self.descriptor).st_size

    def find(self, offset: int, what: str, *, lengths: Sequence[int] = ()) -> Record:
        """Return the record that begins at `offset`.

        Parameters
        ----------
        offset
            Of the marker before it.
        what
            Name of the block, for messages.
        lengths
            Those that it may have, in bytes; empty for what its marker says.

        Raises
        ------
        DataError
            When the file ends within it, the markers differ, or the length is not one of `lengths`.
        """
        marker = self._marker(offset)
        fitting = [length for length in lengths or (marker,) if length % _WORD == marker]
        start, size = offset + MARKER_BYTES, self.size()
        subject = f"{self.path}, block {what} at byte {offset}"
        if not fitting:
            expected = " or ".join(str(length) for length in sorted(set(lengths)))
            raise DataError(
                subject, found=f"a record of {marker} bytes", expected=expected, remedy="another layout, or damaged"
            )
        if start + min(fitting) + MARKER_BYTES > size:
            raise DataError(
                subject,
                found=f"the end of the file at byte {size}",
                expected=f"{start + min(fitting) + MARKER_BYTES} bytes or more",
                remedy="the file is truncated: copy it again",
            )
        closed = {
            length
            for length in fitting
            if start + length + MARKER_BYTES <= size and self._marker(start + length) == marker
        }
        if len(closed) != 1:
            raise DataError(
                subject,
                found=f"{len(closed)} ends that fit the marker {marker}",
                expected="the same marker before and behind the record",
                remedy="the file is damaged: copy it again",
            )
        return Record(start, closed.pop())

    def _marker(self, offset: int) -> int:
        (marker,) = struct.unpack(f"{self.byte_order}I", self.read(offset, MARKER_BYTES))
        return int(marker)
