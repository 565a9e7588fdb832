"""Inflater: the decoded bytes of a gzip or zlib stream, forwards only."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field, replace

from voxload.errors import DataError, UsageError

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


@dataclass(slots=True)
class Inflater:
    """A stream that is decoded as it is read; for one thread.

    zlib itself compares the checksum at the end of each gzip member or zlib stream and raises ``zlib.error``. Gzip
    members may follow each other, and zeros the last one, as RFC 1952 and gzip allow.
    """

    subject: str
    """What error messages name."""
    descriptor: int
    """An open file; its own position is neither used nor moved."""
    offset: int
    """First byte of the file that was not read yet; at the beginning that of the stream."""
    position: int = 0
    """Decoded bytes that were given or skipped."""
    _pending: bytes = b""
    _decoder: zlib._Decompress = field(default_factory=lambda: zlib.decompressobj(_ANY_HEADER))

    def copy(self) -> Inflater:
        """Return another one at the same position, which goes its own way."""
        return replace(self, _decoder=self._decoder.copy())

    def skip_to(self, position: int) -> None:
        """Decode up to a `position` and throw away; raises UsageError when it lies behind."""
        if position < self.position:
            raise UsageError(
                self.subject,
                found=f"a read at decoded byte {position} after byte {self.position}",
                expected="reads in the order of the bytes: a compressed stream only goes forwards",
            )
        while self.position < position:
            self._need(position - self.position)

    def read_into(self, content: memoryview) -> None:
        """Fill `content`; raises DataError when the stream ends before."""
        filled = 0
        while filled < len(content):
            part = self._need(len(content) - filled)
            content[filled : filled + len(part)] = part
            filled += len(part)

    def finish(self) -> None:
        """Verify the checksum behind the last byte; raises DataError when more follows."""
        if self._some(1):
            raise DataError(
                self.subject,
                found=f"more than {self.position} decoded bytes",
                expected="the end of the compressed stream behind the last voxel",
                remedy="the header does not fit the data, or something was appended: write the file again",
            )

    def _need(self, count: int) -> bytes:
        part = self._some(count)
        if not part:
            raise DataError(
                self.subject,
                found=f"the end of the compressed stream after {self.position} decoded bytes",
                expected="more voxels",
                remedy="the file is truncated or its header is wrong: copy it again",
            )
        self.position += len(part)
        return part

    def _some(self, most: int) -> bytes:
        """Return at least one and at most `most` decoded bytes, or none at the end of the stream."""
        while not self._decoder.eof or self._begin_member():
            if not self._pending:
                self._fetch()
            is_end = not self._pending
            part = self._decoder.decompress(self._pending, min(most, _MOST_DECODED))
            self._pending = self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail
            if part:
                return part
            if is_end and not self._decoder.eof:
                raise DataError(
                    self.subject,
                    found=f"the end of the file within the compressed stream, after {self.position} decoded bytes",
                    expected="the rest of it",
                    remedy="the file is truncated: copy it again",
                )
        return b""

    def _fetch(self) -> None:
        fresh = os.pread(self.descriptor, _READ_BYTES, self.offset)
        self.offset += len(fresh)
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
                self.subject,
                found=f"bytes behind the compressed stream, {self._pending[:8]!r}",
                expected="its end",
                remedy="something was appended: write the file again",
            )
        self._decoder = zlib.decompressobj(_ANY_HEADER)
        return True


def inflated_head(head: bytes) -> bytes:
    """Return what the first bytes of a gzip file decode to, at most 4096; nothing for other files."""
    if not head.startswith(GZIP_MAGIC):
        return b""
    try:
        return zlib.decompressobj(_ANY_HEADER).decompress(head, 4096)
    except zlib.error:
        return b""
