"""TFRecord framing: a file of records, each with its length and two checksums.

Source: the TFRecord format as the TensorFlow guide "TFRecord and tf.train.Example" gives it: length (uint64), masked
CRC-32C of the length, data, masked CRC-32C of the data, all little-endian; the whole may be one gzip stream.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from crc32c import crc32c

from voxload.convert.sources.binary.inflater import GZIP_MAGIC, Inflater, inflated_head
from voxload.convert.sources.binary.streams import PIECE_BYTES, decoding
from voxload.convert.sources.probe import HEAD_BYTES, Probe
from voxload.errors import DataError
from voxload.files.regular import open_regular

_FRAME = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_MASK = 0xA282EAD8
_REMEDY = "the file is truncated or damaged: copy it again"


@dataclass(frozen=True, slots=True)
class Record:
    """Where the data of one record lie, in the decompressed stream where there is one."""

    start: int
    """Position of the first byte."""
    length: int
    """Number of bytes."""

    @property
    def stop(self) -> int:
        """Position behind the last byte."""
        return self.start + self.length

    @property
    def end(self) -> int:
        """Position behind the checksum of the data."""
        return self.stop + _CRC.size


class RecordCheck:
    """Compares the checksum of a record when all of it was passed; raises DataError when it does not fit.

    Parameters
    ----------
    path
        The file, for messages.
    record
        The record.
    """

    def __init__(self, path: Path, record: Record) -> None:
        self._path = path
        self._record = record
        self._crc = 0
        self._stored = bytearray()

    def __call__(self, piece: memoryview, position: int) -> None:
        """Take the bytes that follow at `position`; those of other records are left alone."""
        record = self._record
        self._crc = crc32c(_part(piece, position, record.start, record.stop), self._crc)
        self._stored += _part(piece, position, record.stop, record.end)
        if position < record.end <= position + len(piece):
            (stored,) = _CRC.unpack(self._stored)
            if stored != masked(self._crc):
                raise DataError(
                    f"{self._path}, record at byte {record.start}",
                    found=f"data with masked CRC-32C {masked(self._crc):08x}",
                    expected=f"{stored:08x}, as the file says",
                    remedy="the record is damaged: copy the file again",
                )


def masked(crc: int) -> int:
    """Return a CRC-32C as TFRecord files store it: turned by 15 bits, plus a constant."""
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF


def is_gzip(probe: Probe) -> bool:
    """Tell whether a file begins like a gzip stream."""
    return probe.head.startswith(GZIP_MAGIC)


def head_of(probe: Probe) -> bytes:
    """Return how the records begin, decompressed; empty unless the length of the first fits its checksum."""
    head = inflated_head(probe.head, HEAD_BYTES) if is_gzip(probe) else probe.head
    if len(head) < _FRAME.size:
        return b""
    _, crc = _FRAME.unpack_from(head)
    return head if masked(crc32c(head[:8])) == crc else b""


def open_records(path: Path, *, is_compressed: bool) -> io.BufferedReader:
    """Open the stream of records."""
    if is_compressed:
        return io.BufferedReader(Inflater.open(path), PIECE_BYTES)
    return cast("io.BufferedReader", open_regular(path))


def records(path: Path, stream: IO[bytes]) -> Iterator[Record]:
    """Yield the records of a stream; between two of them the caller may read on in the stream, not behind the record.

    Raises DataError at a length whose checksum does not fit and where the stream ends within a record. The checksums
    of the data are not compared: `RecordCheck` does.
    """
    position = 0
    while frame := stream.read(_FRAME.size):
        if len(frame) < _FRAME.size:
            raise DataError(f"{path}", found=_ends(position, len(frame)), expected="a whole record", remedy=_REMEDY)
        length, crc = _FRAME.unpack(frame)
        if masked(crc32c(frame[:8])) != crc:
            raise DataError(
                f"{path}",
                found=f"at byte {position} a length of {length} whose checksum does not fit",
                expected="the length of a record",
                remedy=_REMEDY,
            )
        record = Record(position + _FRAME.size, length)
        yield record
        stream.seek(record.stop)
        if len(stream.read(_CRC.size)) < _CRC.size:
            raise DataError(
                f"{path}",
                found=f"the end of the file within the record at byte {record.start}",
                expected=f"{length} bytes and their checksum",
                remedy=_REMEDY,
            )
        position = record.end


def check_record(path: Path, record: Record) -> None:
    """Read a record of a file that is not compressed and compare its checksum; raises DataError."""
    check, position = RecordCheck(path, record), record.start
    with decoding(f"{path}"), open_regular(path) as file:
        file.seek(position)
        while position < record.end:
            piece = file.read(min(PIECE_BYTES, record.end - position))
            if not piece:
                raise DataError(f"{path}", found=_ends(position, 0), expected="a whole record", remedy=_REMEDY)
            check(memoryview(piece), position)
            position += len(piece)


def _part(piece: memoryview, position: int, start: int, stop: int) -> memoryview:
    """Return what of a piece at `position` lies in an interval."""
    first = min(max(start - position, 0), len(piece))
    return piece[first : max(stop - position, first)]


def _ends(position: int, more: int) -> str:
    return f"the end of the file at byte {position + more}"
