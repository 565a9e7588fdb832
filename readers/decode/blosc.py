"""Blosc: version 1 of the format, whole chunks or only the blocks of a chunk that are wanted.

Source: c-blosc 1.21, README_CHUNK_FORMAT: four bytes of flags, then the bytes decoded, of a block, and stored; then
where each block begins; then the blocks, each compressed and shuffled by itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import imagecodecs

from voxload.readers.decode.ratio import check_ratio
from voxload.readers.scratch import Bytes, scratch

_HEADER = struct.Struct("<4B3I")
HEADER_BYTES = _HEADER.size
"""Bytes of a header."""
_FLAGS = 2
"""Place of the flags in the header."""
_IS_COPIED = 0x2
"""Flag of a chunk that is stored as it is, without a table of blocks."""
_START_BYTES = 4
_decode: Callable[..., Any] = imagecodecs.blosc_decode


@dataclass(frozen=True, slots=True)
class Blosc:
    """Blosc 1; its header is checked here, for the library believes it and would read beyond truncated data."""

    grows: int | None = None

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the decompressed bytes, in this thread's scratch."""
        _check(data, size)
        out = scratch.decoded(size)
        _fill(data, out)
        return out

    def undo_part(self, data: Bytes, size: int, span: tuple[int, int]) -> Bytes:
        """Return `size` bytes of which those in ``[start, stop)`` are what was compressed; others may be anything.

        The library has no call for this that releases the interpreter lock, but blocks are independent: those that
        are wanted, behind a header that counts only them, are a chunk of their own.
        """
        header = _check(data, size)
        block, stored = header[5], header[6]
        if not 0 < block < size or header[_FLAGS] & _IS_COPIED:
            return self.undo(data, size)
        blocks = -(-size // block)
        # The library refuses a chunk shorter than a block, so a short last block takes the one before along.
        first = min(span[0] // block, blocks - 2 if size % block else blocks - 1)
        last = max(-(-span[1] // block), first + 1)
        table = _HEADER.size + blocks * _START_BYTES
        if last - first == blocks or stored <= table:
            return self.undo(data, size)
        starts = data[_HEADER.size : table].view("<u4").tolist()
        if not table <= min(starts) <= max(starts) < stored:
            return self.undo(data, size)  # which says what is wrong
        out = scratch.decoded(size)
        wanted = out[first * block : min(last * block, size)]
        header = (*header[:4], len(wanted), block, 0)
        _fill(_chunk_of(data, header, starts[first:last], _end(starts, first, last, stored)), wanted)
        return out


def _end(starts: list[int], first: int, last: int, stored: int) -> int:
    """Return where the last of the wanted blocks ends; several threads may have written them in any order."""
    final = max(starts[first:last])
    return min([start for start in starts if start > final], default=stored)


def _check(data: Bytes, size: int) -> tuple[int, ...]:
    """Return the header's numbers; raises ValueError unless they fit the data and the size that is expected."""
    header = check_header(data[: _HEADER.size].data, len(data))
    if header[4] != size:
        raise ValueError(f"blosc header of {header[4]} bytes in {len(data)} instead of {size} in {len(data)}")
    return header


def check_header(head: bytes | memoryview, stored: int) -> tuple[int, ...]:
    """Return the numbers of a chunk's header.

    Parameters
    ----------
    head
        The first bytes of a chunk, at least `HEADER_BYTES` of them where it has as many.
    stored
        Bytes of the chunk.

    Raises
    ------
    ValueError
        When the chunk is not as long as its header says, which libraries read beyond, or decodes to more than it can.
    """
    if stored < HEADER_BYTES:
        raise ValueError(f"{stored} bytes where a blosc header of {HEADER_BYTES} belongs")
    header = _HEADER.unpack_from(head)
    if header[6] != stored:
        raise ValueError(f"blosc header of {header[4]} bytes in {header[6]} instead of {stored}")
    check_ratio("blosc", stored, header[4])
    return header


def _chunk_of(data: Bytes, header: tuple[int, ...], starts: list[int], end: int) -> Bytes:
    """Return the blocks that begin at `starts` as a chunk; what lies between comes along. Completes `header`."""
    table, begin = _HEADER.size + len(starts) * _START_BYTES, min(starts)
    if scratch.is_stored(data):
        # In place: the new table is no longer than the old one, which lies before every block.
        chunk = data[begin - table : end]
    else:
        chunk = scratch.stored(table + end - begin)
        chunk[table:] = data[begin:end]
    struct.pack_into(f"<{len(starts)}I", chunk.data, _HEADER.size, *(start - begin + table for start in starts))
    _HEADER.pack_into(chunk.data, 0, *header[:-1], len(chunk))
    return chunk


def _fill(data: Bytes, out: Bytes) -> None:
    """Decompress a chunk of exactly as many bytes as `out` has."""
    found = _decode(data, out=out, numthreads=1)
    if len(found) != len(out):
        raise ValueError(f"blosc gave {len(found)} bytes instead of {len(out)}")
