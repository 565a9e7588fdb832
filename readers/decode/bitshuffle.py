"""Bitshuffle: the HDF5 filter that sorts the bits of elements into planes, then compresses block by block.

Sources: bitshuffle 0.5, ``bshuf_h5filter.c``: eight bytes of decoded size and four of block size, big-endian; before
each block its stored size in four bytes, big-endian; what is left beyond a multiple of eight elements stands at the
end as it is. Without a compressor there is no header, and the block size is the filter's parameter.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from voxload.core.library import function
from voxload.readers.decode.ratio import check_ratio
from voxload.readers.scratch import Bytes, Scratch, scratch

_HEADER = struct.Struct(">QI")
_UNIT = 8
"""Elements are sorted by eights."""
_MAX_BLOCK = 2**30
_sorted, _row = Scratch(), Scratch()
"""Each thread's buffers for a chunk that is decompressed but still in planes of bits, and for its frames in a row."""


class Compressor(IntEnum):
    """The compressors of the filter, by their number in its parameters."""

    NONE = 0
    LZ4 = 2
    ZSTD = 3


@dataclass(frozen=True, slots=True)
class Bitshuffle:
    """HDF5's filter 32008."""

    itemsize: int
    """Bytes of an element, the filter's third parameter."""
    block: int
    """Elements of a block where no header tells; 0 means the library's default."""
    compressor: Compressor
    """How blocks are compressed."""
    grows: int | None = None

    @classmethod
    def parse(cls, values: tuple[int, ...], itemsize: int) -> Bitshuffle | None:
        """Return the filter of these parameters; None when they are not ones for elements of `itemsize`."""
        padded = (*values, 0, 0)
        if len(values) < 3 or padded[2] != itemsize or padded[3] % _UNIT or padded[3] > _MAX_BLOCK:
            return None
        return cls(itemsize, padded[3], Compressor(padded[4])) if padded[4] in set(Compressor) else None

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the decoded bytes, in this thread's scratch."""
        if size < 0 or size % self.itemsize:
            raise ValueError(f"{size} bytes for elements of {self.itemsize}")
        if self.compressor is Compressor.NONE:
            if len(data) != size:
                raise ValueError(f"bitshuffle of {len(data)} bytes instead of {size}")
            return self._unsorted(data, self.block)
        if len(data) < _HEADER.size:
            raise ValueError(f"{len(data)} bytes where a bitshuffle header of {_HEADER.size} belongs")
        decoded, block = _HEADER.unpack_from(data.data)
        if decoded != size or not 0 < block <= _MAX_BLOCK or block % (_UNIT * self.itemsize):
            raise ValueError(f"bitshuffle header of {decoded} bytes in blocks of {block} instead of {size}")
        check_ratio("bitshuffle", len(data), size)
        return self._unsorted(self._decompressed(data, size, block), block // self.itemsize)

    def _decompressed(self, data: Bytes, size: int, block: int) -> Bytes:
        """Return the planes of bits of all blocks."""
        out = _sorted.decoded(size)
        rest = size % (_UNIT * self.itemsize)
        body = size - rest
        places = np.empty((-(-body // block), 2), np.int64)
        end = _find_blocks(data, len(data), _HEADER.size, places, len(places))
        if end < 0 or len(data) - end != rest:
            raise ValueError(f"bitshuffle blocks end at {end} of {len(data)} bytes, and {rest} belong behind them")
        # imagecodecs' decoder of the like-minded LZ4 filter takes a block of full size for one stored as it is, and
        # knows nothing of a rest; both are rare.
        if body and self.compressor is Compressor.ZSTD:
            # Frames in a row decode to what they decode to in turn: one call, and one context, for all blocks.
            row = _row.stored(int(places[:, 1].sum()))
            np.concatenate([data[start : start + length] for start, length in places.tolist()], out=row)
            found = len(_decode_zstd(row, out=out[:body]))
        elif rest or _has_full_block(places[:, 1], size, block):
            found = 0
            for index, (start, length) in enumerate(places.tolist()):
                part = out[index * block : min((index + 1) * block, body)]
                found += len(_decode_lz4(data[start : start + length], out=part))
        else:
            found = len(_decode_lz4_blocks(data, out=out))
        if found != body:
            raise ValueError(f"bitshuffle blocks gave {found} bytes instead of {body}")
        out[body:] = data[end:]
        return out

    def _unsorted(self, planes: Bytes, block: int) -> Bytes:
        """Return elements from their planes of bits."""
        out = scratch.decoded(len(planes))
        # As a memoryview: given an array, the function would count elements, not bytes.
        _unshuffle(planes.data, itemsize=self.itemsize, blocksize=block, out=out)
        return out


_find_blocks = function("find_blocks", "rnnwn", "i")
_decode_lz4_blocks: Callable[..., Any] = imagecodecs.lz4h5_decode
_unshuffle: Callable[..., Any] = imagecodecs.bitshuffle_decode
_decode_lz4: Callable[..., Any] = imagecodecs.lz4_decode
_decode_zstd: Callable[..., Any] = imagecodecs.zstd_decode


def _has_full_block(lengths: npt.NDArray[np.int64], size: int, block: int) -> bool:
    """Tell whether a block is stored in as many bytes as it decodes to."""
    last = size - (len(lengths) - 1) * block
    return bool((lengths[:-1] == block).any()) or bool(len(lengths) and lengths[-1] == last)
