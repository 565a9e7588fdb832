"""Szip: the extended Rice coder of CCSDS 121.0-B, as HDF5's filter 4 stores it.

Sources: HDF5 2.0, H5Zszip.c: four bytes of decoded size, little-endian, then the stream; libaec 1.1, sz_compat.c: scan
lines are padded to whole blocks, and elements of four and eight bytes are coded as planes of their bytes.

libaec's own undoing of the padding says that all was decoded whatever the stream held. So it is told of whole blocks
and single bytes only, for which it counts truly, and padding and planes are undone here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import imagecodecs
import numpy as np

from voxload.readers.decode.ratio import check_ratio
from voxload.readers.scratch import Bytes, Scratch, scratch

_SIZE = struct.Struct("<I")
_MAX_BLOCK, _MAX_LINE = 32, 4096
_coded = Scratch()
"""Each thread's buffer for a chunk with its padding, and still in planes."""
_decode: Callable[..., Any] = imagecodecs.szip_decode


@dataclass(frozen=True, slots=True)
class Szip:
    """HDF5's filter 4."""

    itemsize: int
    """Bytes of an element."""
    options: int
    """Mask of the coder's options."""
    block: int
    """Samples in a block."""
    line: int
    """Samples in a scan line."""
    grows: int | None = None

    @classmethod
    def parse(cls, values: tuple[int, ...], itemsize: int) -> Szip | None:
        """Return the filter of these parameters; None when they are not ones for elements of `itemsize`."""
        if len(values) < 4 or values[2] != 8 * itemsize or not 0 < values[1] <= min(_MAX_BLOCK, values[3]):
            return None
        return cls(itemsize, values[0], values[1], values[3]) if values[3] <= _MAX_LINE else None

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the decompressed bytes, in this thread's scratch."""
        if len(data) < _SIZE.size or _SIZE.unpack_from(data.data)[0] != size or size % self.itemsize:
            raise ValueError(f"szip header {bytes(data[: _SIZE.size]).hex()} instead of {size} bytes")
        check_ratio("szip", len(data), size)
        width = self.itemsize if self.itemsize <= 2 else 1
        padded = -(-self.line // self.block) * self.block
        lines = -(-size // (width * self.line))
        is_direct = padded == self.line and width == self.itemsize
        coded = (scratch if is_direct and lines * padded * width == size else _coded).decoded(lines * padded * width)
        found = len(_decode(data[_SIZE.size :], self.options, self.block, 8 * width, padded, out=coded))
        if found != len(coded):
            raise ValueError(f"szip gave {found} bytes instead of {len(coded)}")
        bare = coded.reshape(lines, padded * width)[:, : self.line * width]
        if width != self.itemsize:
            return _elements(bare, size, self.itemsize)
        if len(coded) == size:
            return coded
        out = scratch.decoded(size)
        whole = size // (self.line * width)
        np.copyto(out[: whole * self.line * width].reshape(whole, -1), bare[:whole])
        out[whole * self.line * width :] = bare[whole:].reshape(-1)[: size - whole * self.line * width]
        return out


def _elements(lines: Any, size: int, itemsize: int) -> Bytes:
    """Return elements from the planes of their bytes, which lie in `lines` one after the other."""
    planes = lines.reshape(-1)[:size].reshape(itemsize, -1)
    out = scratch.decoded(size)
    np.copyto(out.reshape(-1, itemsize), planes.T)
    return out
