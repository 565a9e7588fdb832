"""Inflater: the decoded bytes of a gzip or zlib stream, forwards only. Every source that inflates one does it here."""

from __future__ import annotations

import io
import os
import zlib
from pathlib import Path
from typing import IO, Any

from voxload.errors import DataError, UsageError
from voxload.files.regular import open_regular

_READ_BYTES = 2**16
_MOST_DECODED = 2**18
STATE_BYTES = 2**17
"""Memory of a decoder: its window of 32 KiB and compressed bytes read ahead."""
WORKING_BYTES = 3 * _MOST_DECODED
"""Memory of the one decoder at work: zlib's own blocks, what it joins them to, and what was decoded before."""

GZIP_MAGIC = b"\x1f\x8b"
"""First bytes of a gzip member. Source: RFC 1952, section 2.3.1."""

_ANY_HEADER = 32 + zlib.MAX_WBITS
"""What tells zlib to take a gzip or a zlib header, whichever is there."""
_HEAD_BYTES = 4096


class Inflater(io.RawIOBase):
    """A stream that is decoded as it is read; for one thread.

    zlib itself compares the checksum at the end of each gzip member or zlib stream and raises ``zlib.error``. Gzip
    members may follow each other, and zeros the last one, as RFC 1952 and gzip allow.

    Parameters
    ----------
    subject
        What error messages name.
    file
        An open file; its own position is neither used nor moved. It is closed with this stream, not with copies of it.
    offset
        First byte of the file that belongs to the stream.
    """

    def __init__(self, subject: str, file: IO[bytes], offset: int) -> None:
        super().__init__()
        self._subject = subject
        self._file = file
        self._is_owner = True
        self._offset = offset
        self._position = 0
        self._pending = b""
        self._decoder = zlib.decompressobj(_ANY_HEADER)

    @classmethod
    def open(cls, path: Path, offset: int = 0) -> Inflater:
        """Open a file that holds a stream from a byte on; closing the stream closes it."""
        return cls(f"{path}", open_regular(path, buffering=0), offset)

    def copy(self) -> Inflater:
        """Return another one at the same position, which goes its own way; it ends with the file of this one."""
        other = Inflater(self._subject, self._file, self._offset)
        other._is_owner = False
        other._position, other._pending = self._position, self._pending
        other._decoder = self._decoder.copy()
        return other

    def close(self) -> None:
        """Close the stream, and the file unless this is a copy."""
        if not self.closed and self._is_owner:
            self._file.close()
        super().close()

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be moved, if forwards only."""
        return True

    def tell(self) -> int:
        """Return how many decoded bytes were given or skipped."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Decode up to a position and throw away; raises UsageError when it lies behind, DataError beyond the end."""
        position = offset + (self._position if whence == os.SEEK_CUR else 0)
        if position < self._position or whence == os.SEEK_END:
            raise UsageError(
                self._subject,
                found=f"a read at decoded byte {position} after byte {self._position}",
                expected="reads in the order of the bytes: a compressed stream only goes forwards",
            )
        while self._position < position and self._some(position - self._position):
            pass
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill the beginning of a buffer with what comes next; return how many bytes, 0 at the end of the stream."""
        content = memoryview(buffer).cast("B")
        part = self._some(len(content))
        content[: len(part)] = part
        return len(part)

    def _some(self, most: int) -> bytes:
        """Return at least one and at most `most` decoded bytes, or none at the end of the stream."""
        while most and (not self._decoder.eof or self._begin_member()):
            if not self._pending:
                self._fetch()
            is_end = not self._pending
            part = self._decoder.decompress(self._pending, min(most, _MOST_DECODED))
            self._pending = self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail
            if part:
                self._position += len(part)
                return part
            if is_end and not self._decoder.eof:
                raise DataError(
                    self._subject,
                    found=f"the end of the file within the compressed stream, after {self._position} decoded bytes",
                    expected="the rest of it",
                    remedy="the file is truncated: copy it again",
                )
        return b""

    def _fetch(self) -> None:
        fresh = os.pread(self._file.fileno(), _READ_BYTES, self._offset)
        self._offset += len(fresh)
        self._pending += fresh

    def _begin_member(self) -> bool:
        """Go on with the next gzip member; False at the end of the file, which only zeros may fill."""
        if len(self._pending) < len(GZIP_MAGIC):
            self._fetch()
        while self._pending and not self._pending.strip(b"\0"):
            self._pending = b""
            self._fetch()
        if not self._pending:
            return False
        if not self._pending.startswith(GZIP_MAGIC):
            raise DataError(
                self._subject,
                found=f"bytes behind the compressed stream, {self._pending[:8]!r}",
                expected="its end",
                remedy="something was appended: write the file again",
            )
        self._decoder = zlib.decompressobj(_ANY_HEADER)
        return True


def inflated_head(head: bytes, most: int = _HEAD_BYTES) -> bytes:
    """Return what the first bytes of a gzip file decode to, at most `most`; nothing for other files."""
    if not head.startswith(GZIP_MAGIC):
        return b""
    try:
        return zlib.decompressobj(_ANY_HEADER).decompress(head, most)
    except zlib.error:
        return b""
