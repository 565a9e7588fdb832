"""Bzip2: one stream a chunk, decoded to a size that is known before."""

from __future__ import annotations

import bz2
from dataclasses import dataclass

import numpy as np

from voxload.readers.scratch import Bytes, scratch

_BLOCK_STORED = 24
"""No block takes fewer bytes: its signature, checksum, map of bytes and code lengths."""
_BLOCK_HOLDS = 900_000 * 255 // 5 + 255
"""No block holds more bytes: as many, of which five can stand for 255."""


@dataclass(frozen=True, slots=True)
class Bzip2:
    """HDF5's filter 307; source: bzip2 1.0.8, manual, section 3.

    Every block and the whole stream have a CRC-32.
    """

    grows: int | None = None

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the decompressed bytes, in this thread's scratch; at most -`size` of them where it is negative."""
        holds = (len(data) // _BLOCK_STORED + 1) * _BLOCK_HOLDS
        if size > holds:
            raise ValueError(f"{len(data)} bytes of bzip2, which cannot hold {size}")
        most = min(abs(size), holds)
        stream = bz2.BZ2Decompressor()
        try:
            found = stream.decompress(data.data, most + 1)
        except OSError as error:  # of no number: what it read was a buffer
            raise ValueError(f"bzip2: {error}") from error
        if not stream.eof and len(found) <= most:
            raise ValueError("bzip2 stream without its end")
        if len(found) > most or (size >= 0 and len(found) != size):
            raise ValueError(f"bzip2 gave {len(found)} bytes or more instead of {most}")
        if stream.unused_data:
            raise ValueError(f"{len(stream.unused_data)} bytes behind a bzip2 stream")
        out = scratch.decoded(len(found))
        np.copyto(out, np.frombuffer(found, np.uint8))
        return out
