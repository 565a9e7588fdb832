"""Blosc2: chunks in a contiguous frame, as HDF5's filter 32026 stores them.

Sources: c-blosc2 2.x, README_CFRAME_FORMAT, README_CHUNK_FORMAT and README_B2ND_METALAYER. A frame is a header with
named metalayers, one chunk, the chunk's place as a chunk of its own, and a trailer. Arrays of two and more axes lie in
the chunk block by block, and blocks at the far edges are padded.

Every number is checked here before c-blosc2 sees the chunk: it believes some of them, and looks up foreign codecs by
running a Python interpreter.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import imagecodecs
import numpy as np

from voxload.readers.scratch import Bytes, Scratch, scratch

_MAGIC = b"b2frame\0"
_HEADER_BYTES = 97
"""Of a frame, up to its first metalayer."""
_CHUNK_HEADER = struct.Struct("<4B3I")
_CHUNK_HEADER_BYTES = 32
_EXTENDED = 0b101
_FOREIGN = 5
"""From this number on the codecs and filters of a chunk come from elsewhere."""
_FOREIGN_PARAMETER = 6
"""The same, for the numbers in the filter's parameters."""
_DELTA, _TRUNCATION = 3, 4
"""The first is undone with the first block, which must be all undone by then: else with what lay there before."""
_KNOWN_FLAGS = 0b0111_0001
"""Of a chunk: a dictionary, and the kind of a run. Others mean chunks that lie elsewhere or have other headers."""
_SPECIAL = 0x80
_ZEROS, _NANS = 1, 2
_padded = Scratch()
"""Each thread's buffer for a chunk that still lies block by block."""
_decode: Callable[..., Any] = imagecodecs.blosc2_decode


@dataclass(frozen=True, slots=True)
class Blosc2:
    """HDF5's filter 32026."""

    extents: tuple[int, ...] | None
    """Shape of a chunk, where the filter's parameters tell."""
    grows: int | None = None

    @classmethod
    def parse(cls, values: tuple[int, ...]) -> Blosc2 | None:
        """Return the filter of these parameters; None when it uses codecs or filters that do not come with Blosc2."""
        if any(value >= _FOREIGN_PARAMETER for value in values[5:7]):
            return None
        return cls(values[8:] if len(values) > 8 and len(values) == 8 + values[7] else None)

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the decoded bytes, in this thread's scratch."""
        frame = _Frame.parse(data)
        blocks = frame.blocks
        if blocks is None:
            if frame.nbytes != size:
                raise ValueError(f"blosc2 frame of {frame.nbytes} bytes instead of {size}")
            return self._chunk(data, frame, scratch.decoded(size))
        if blocks.extents != (self.extents or blocks.extents) or prod(blocks.extents) * frame.itemsize != size:
            raise ValueError(f"blosc2 array of {blocks.extents} and {frame.itemsize} bytes instead of {size} in all")
        if frame.nbytes != blocks.count * frame.itemsize:
            raise ValueError(f"blosc2 frame of {frame.nbytes} bytes instead of {blocks.count * frame.itemsize}")
        return blocks.joined(self._chunk(data, frame, _padded.decoded(blocks.count * frame.itemsize)), frame.itemsize)

    def _chunk(self, data: Bytes, frame: _Frame, out: Bytes) -> Bytes:
        """Decode the frame's only chunk."""
        index = data[frame.start + frame.stored :]
        place = np.zeros(8, np.uint8)
        _decode_chunk(index, place, is_last=False)
        if place[7] & _SPECIAL:
            kind = int(place[7]) & 0b111
            if kind not in (_ZEROS, _NANS) or (kind == _NANS and frame.itemsize not in (4, 8)):
                raise ValueError(f"blosc2 chunk of kind {kind}, which only h5py reads")
            out.view(f"u{frame.itemsize}" if kind == _ZEROS and frame.itemsize in (1, 2, 4, 8) else "u1")[...] = 0
            if kind == _NANS:
                out.view(f"<f{frame.itemsize}")[...] = np.nan
            return out
        if place.any():
            raise ValueError("blosc2 frame of several chunks, or whose chunk is not the first")
        _decode_chunk(data[frame.start : frame.start + frame.stored], out, is_last=True)
        return out


def _decode_chunk(data: Bytes, out: Bytes, *, is_last: bool) -> None:
    """Decode a chunk that begins with `data`, into all of `out`; `is_last` tells that nothing may follow it."""
    if len(data) < _CHUNK_HEADER_BYTES:
        raise ValueError(f"{len(data)} bytes where a blosc2 chunk header of {_CHUNK_HEADER_BYTES} belongs")
    _, _, flags, _, decoded, block, stored = _CHUNK_HEADER.unpack_from(data.data)
    if decoded != len(out) or not _CHUNK_HEADER_BYTES <= stored <= len(data) or (is_last and stored != len(data)):
        raise ValueError(f"blosc2 chunk of {decoded} bytes in {stored} instead of {len(out)} in {len(data)}")
    if flags & _EXTENDED != _EXTENDED or flags >> 5 >= _FOREIGN or not 0 < block <= decoded:
        raise ValueError(f"blosc2 chunk with flags {flags:#04x} and blocks of {block}")
    filters, more = data[16:22].tolist(), int(data[31])
    acting = [number for number in filters if number not in (0, _TRUNCATION)]
    if max(filters) >= _FOREIGN or more & ~_KNOWN_FLAGS or _DELTA in acting[1:]:
        raise ValueError(f"blosc2 chunk with filters {filters} and flags {more:#04x}")
    found = _decode(data[:stored], out=out, numthreads=1)
    if len(found) != len(out):
        raise ValueError(f"blosc2 gave {len(found)} bytes instead of {len(out)}")


@dataclass(frozen=True, slots=True)
class _Blocks:
    """How an array lies in its chunk."""

    extents: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def count(self) -> int:
        """Elements of the chunk, with what pads the blocks at its far edges."""
        return prod(-(-extent // width) * width for extent, width in zip(self.extents, self.block, strict=True))

    def joined(self, padded: Bytes, itemsize: int) -> Bytes:
        """Return the array's bytes in C order, in this thread's scratch."""
        element = f"u{itemsize}" if itemsize in (1, 2, 4, 8) else f"V{itemsize}"
        out = scratch.decoded(prod(self.extents) * itemsize)
        whole = out.view(element).reshape(self.extents)
        blocks = padded.view(element).reshape(-1, *self.block)
        starts = itertools.product(
            *[range(0, extent, width) for extent, width in zip(self.extents, self.block, strict=True)]
        )
        for block, start in zip(blocks, starts, strict=True):
            target = whole[tuple(slice(lo, lo + width) for lo, width in zip(start, self.block, strict=True))]
            target[...] = block[tuple(slice(0, length) for length in target.shape)]
        return out


@dataclass(frozen=True, slots=True)
class _Frame:
    """What the header of a frame tells."""

    start: int
    """First byte of the chunk."""
    stored: int
    """Bytes of the chunk as stored; 0 for a run, which is told by its place alone."""
    nbytes: int
    """Bytes of the chunk decoded."""
    itemsize: int
    """Bytes of an element."""
    blocks: _Blocks | None
    """How an array lies in the chunk; None for bytes in order."""

    @classmethod
    def parse(cls, data: Bytes) -> _Frame:
        """Read the header; raises ValueError when its numbers contradict each other."""
        raw = data.data
        if len(data) < _HEADER_BYTES or bytes(data[2:10]) != _MAGIC:
            raise ValueError(f"{len(data)} bytes that are no blosc2 frame")
        (start,) = struct.unpack_from(">I", raw, 11)
        (size,) = struct.unpack_from(">Q", raw, 16)
        nbytes, _, stored, _, itemsize = struct.unpack_from(">QBQBI", raw, 30)
        if size != len(data) or not _HEADER_BYTES <= start <= size or stored > size - start or itemsize < 1:
            raise ValueError(f"blosc2 frame of {size} bytes, chunk of {stored} at {start}, in {len(data)}")
        return cls(start, stored, nbytes, itemsize, _parse_blocks(bytes(data[:start])))


def _parse_blocks(header: bytes) -> _Blocks | None:
    """Find the metalayer of an array; None where the header has none."""
    try:
        (layers,) = struct.unpack_from(">H", header, 92)
        at = 94
        for _ in range(layers):
            length = header[at] & 0x1F
            name = header[at + 1 : at + 1 + length]
            (place,) = struct.unpack_from(">xI", header, at + 1 + length)
            at += 6 + length
            if name == b"b2nd":
                return _parse_array(header, place + 5)
            if name == b"caterva":
                raise ValueError("blosc2 frame of Caterva, which only h5py reads")
    except (struct.error, IndexError) as error:
        raise ValueError("blosc2 frame whose header is cut off") from error
    return None


def _parse_array(header: bytes, at: int) -> _Blocks:
    """Read shape, chunk shape and block shape; raises ValueError unless one chunk holds the array."""
    ndim = header[at + 2]
    at += 3
    shape = struct.unpack_from(">" + "xQ" * ndim, header, at + 1)
    at += 1 + 9 * ndim
    chunk = struct.unpack_from(">" + "xI" * ndim, header, at + 1)
    at += 1 + 5 * ndim
    block = struct.unpack_from(">" + "xI" * ndim, header, at + 1)
    if shape != chunk or not all(0 < width <= extent for width, extent in zip(block, chunk, strict=True)):
        raise ValueError(f"blosc2 array of {shape} in chunks of {chunk} and blocks of {block}")
    return _Blocks(shape, block)
