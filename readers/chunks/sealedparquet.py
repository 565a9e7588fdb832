"""Sealed Parquet: a file whose footer carries the CRC-32C of itself.

Parquet protects its pages but not its footer, and a footer with a flipped bit can end the process inside pyarrow
(seen with 26.0) before an error could be raised. So the footer's key-value metadata hold a place for eight
hexadecimal digits, which `seal` fills in and `read_sealed` compares, counting zeros in their place, before pyarrow
sees a byte. To other tools it is one more entry of metadata.

Source: Apache Parquet file format 2.11: footer, four bytes of its length, ``PAR1``.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import crc32c
import pyarrow as pa
import pyarrow.parquet as pq

from voxload.files.regular import open_regular

METADATA = {"voxload": "footer-crc32c:00000000"}
"""What the schema of a file that is to be sealed must have among its metadata."""

_MARK = b"footer-crc32c:"
_DIGITS = 8
_MAGIC = b"PAR1"
_TAIL_BYTES = 8


def seal(path: Path) -> None:
    """Write the checksum of a finished file's footer into it."""
    with path.open("r+b") as file:
        start, footer = _footer(file)
        place = _place(footer)
        file.seek(start + place)
        file.write(_checksum(footer, place))


def read_sealed(source: Path | bytes) -> Any:
    """Return the footer of a file, or of one that is in memory, as pyarrow's FileMetaData.

    It is proved to be what was written. Raises ValueError when it is not, OSError when the file cannot be read.
    """
    with io.BytesIO(source) if isinstance(source, bytes) else open_regular(source) as file:
        _, footer = _footer(file)
    place = _place(footer)
    found, expected = footer[place : place + _DIGITS], _checksum(footer, place)
    if found != expected:
        raise ValueError(f"a footer with checksum {found.decode(errors='replace')} instead of {expected.decode()}")
    alone = _MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC
    return pq.read_metadata(pa.BufferReader(alone))


def _footer(file: Any) -> tuple[int, bytes]:
    """Return where the footer begins, and its bytes."""
    size = file.seek(0, 2)
    if size < len(_MAGIC) + _TAIL_BYTES:
        raise ValueError(f"{size} bytes, which are no Parquet file")
    file.seek(size - _TAIL_BYTES)
    tail = file.read(_TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > size - len(_MAGIC) - _TAIL_BYTES:
        raise ValueError("no Parquet footer at the end")
    start = size - _TAIL_BYTES - length
    file.seek(start)
    return start, file.read(length)


def _place(footer: bytes) -> int:
    """Return where the digits stand: the metadata come after the statistics, which may hold any text."""
    place = footer.rfind(_MARK) + len(_MARK)
    if place < len(_MARK) or place + _DIGITS > len(footer):
        raise ValueError("a footer without a checksum of its own")
    return place


def _checksum(footer: bytes, place: int) -> bytes:
    blank = footer[:place] + b"0" * _DIGITS + footer[place + _DIGITS :]
    return b"%08x" % crc32c.crc32c(blank)
