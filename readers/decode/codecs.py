"""Codecs: from a chunk as stored to its bytes, without the interpreter lock.

A pipeline is a list of steps in the order of writing; reading walks it backwards. Each step knows its filter's place
in the HDF5 filter mask, so that a chunk that was stored without a filter is read without it. The byte shuffle is
no step: the kernels undo it while they paste, which is why it must come first in writing.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import crc32c
import imagecodecs
import numpy as np

from voxload.errors import DataError
from voxload.readers.decode.blosc import Blosc
from voxload.readers.decode.ratio import check_ratio, longest_stored, most_decoded
from voxload.readers.scratch import Bytes, Scratch, address, scratch

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


_CHECKSUM_BYTES = 4
_SIZE = struct.Struct("<I")
_MEMBER_PIECE = 2**14
"""Bytes fed to zlib at once: what it leaves behind a member is copied for each."""
_between = Scratch()
"""Each thread's buffer for what one compressor made of another's bytes."""
_fletcher32: Callable[[Bytes], int] = cast("Any", imagecodecs.h5checksum_fletcher32)
_gzip_decode: Callable[..., Any] = imagecodecs.gzip_decode
_lz4_decode: Callable[..., Any] = imagecodecs.lz4_decode


class Step(Protocol):
    """One filter that changes the bytes of a chunk."""

    @property
    def grows(self) -> int | None:
        """Bytes that writing adds to data of any size: a checksum's, or 0; None for a compressor."""
        ...

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the `size` bytes that the filter was given; raises ValueError or RuntimeError on bad data.

        A negative size says that they are -`size` at most: of what a compressor made no more is known. Only checksums
        and what `may_follow` names are asked so.
        """
        ...


@dataclass(frozen=True, slots=True)
class Decompress:
    """A compressor, undone by a function of imagecodecs that writes into a given buffer."""

    name: str
    """Name for messages."""
    decode: Callable[..., Any]
    """imagecodecs' function."""
    options: tuple[tuple[str, Any], ...] = ()
    """Keyword arguments of `decode`."""
    grows: int | None = None

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the decompressed bytes, in this thread's scratch."""
        check_ratio(self.name, len(data), size)
        out = scratch.decoded(size if size >= 0 else most_decoded(len(data), -size))
        found = self.decode(data, out=out, **dict(self.options))
        if size < 0:
            return out[: len(found)]
        if len(found) != size:
            raise ValueError(f"{self.name} gave {len(found)} bytes instead of {size}")
        return out


@dataclass(frozen=True, slots=True)
class Unshuffle:
    """The byte shuffle behind another filter: bytes in planes, one for each place in an element, then the rest."""

    width: int
    """Bytes of an element."""
    grows: int | None = 0

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the bytes of elements, in an array of their own."""
        if size >= 0 and len(data) != size:
            raise ValueError(f"{len(data)} shuffled bytes instead of {size}")
        count = len(data) // self.width
        out = data.copy()
        body = count * self.width
        out[:body].reshape(count, self.width)[...] = data[:body].reshape(self.width, count).T
        return out


@dataclass(frozen=True, slots=True)
class SizedLz4:
    """numcodecs' LZ4: the decoded size in four little-endian bytes, then one block; the size is checked here first."""

    grows: int | None = None

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the decompressed bytes, in this thread's scratch."""
        if len(data) < _SIZE.size or _SIZE.unpack_from(data.data)[0] != size:
            raise ValueError(f"lz4 header {bytes(data[: _SIZE.size]).hex()} instead of {size} bytes")
        check_ratio("lz4", len(data), size)
        out = scratch.decoded(size)
        found = _lz4_decode(data[_SIZE.size :], out=out)
        if len(found) != size:
            raise ValueError(f"lz4 gave {len(found)} bytes instead of {size}")
        return out


@dataclass(frozen=True, slots=True)
class Gzip:
    """Zarr's gzip codec: one member, or several of which each has its own checksum.

    Source: RFC 1952, section 2.2: a file is a series of members, and decodes to what they decode to in turn.
    """

    grows: int | None = None

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the decompressed bytes, in this thread's scratch."""
        check_ratio("gzip", len(data), size)
        out = scratch.decoded(size)
        found = _gzip_decode(data, out=out)
        # The binding stops behind the first member, and does not say where; the last one ends with its size.
        if len(found) == size and _SIZE.unpack_from(data.data, len(data) - _SIZE.size)[0] == size % 2**32:
            return out
        done = at = 0
        while at < len(data) and done <= size and data[at:].any():  # zeros may pad the end
            done, at = _member(data, at, out, done)
        if done != size:
            raise ValueError(f"gzip gave {done} bytes or more instead of {size}")
        return out


def _member(data: Bytes, start: int, out: Bytes, done: int) -> tuple[int, int]:
    """Decode the member at `start` to where `out` is filled; return how far it is then, and where the next begins.

    What comes beyond `out` is counted, not written.
    """
    stream, at = zlib.decompressobj(wbits=31), start
    while not stream.eof:
        piece = stream.unconsumed_tail or data[at : at + _MEMBER_PIECE].data
        at += 0 if stream.unconsumed_tail else len(piece)
        if not len(piece):
            raise ValueError("gzip member without its end")
        try:
            found = stream.decompress(piece, len(out) - done + 1)
        except zlib.error as error:
            raise ValueError(f"gzip member at {start}: {error}") from error
        fits = min(len(found), len(out) - done)
        out[done : done + fits] = np.frombuffer(found, np.uint8)[:fits]
        done += len(found)
        if done > len(out):
            break
    return done, at - len(stream.unused_data)


@dataclass(frozen=True, slots=True)
class Fletcher32:
    """The checksum of HDF5's filter 3: the data, then four bytes, low half first."""

    grows: int | None = _CHECKSUM_BYTES

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the data if they have their checksum; raises ValueError otherwise."""
        body, found = _split(data, size)
        expected = int(_fletcher32(body))
        if expected != found:
            raise ValueError(f"Fletcher-32 checksum {found:#010x} instead of {expected:#010x}")
        return body


@dataclass(frozen=True, slots=True)
class Crc32c:
    """Zarr's crc32c codec: the data, then their checksum as four little-endian bytes."""

    grows: int | None = _CHECKSUM_BYTES

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the data if they have their checksum; raises ValueError otherwise."""
        body, found = _split(data, size)
        expected = crc32c.crc32c(body.data)
        if expected != found:
            raise ValueError(f"CRC-32C checksum {found:#010x} instead of {expected:#010x}")
        return body


def _split(data: Bytes, size: int) -> tuple[Bytes, int]:
    """Part data from the checksum behind it; `size` is negative where only the compressor inside knows it."""
    if len(data) < _CHECKSUM_BYTES or (size >= 0 and size != len(data) - _CHECKSUM_BYTES):
        raise ValueError(f"{len(data)} bytes where {size} and a checksum of {_CHECKSUM_BYTES} belong")
    return data[:-_CHECKSUM_BYTES], int(data[-_CHECKSUM_BYTES:].view("<u4")[0])


DEFLATE = Decompress("deflate", imagecodecs.deflate_decode)
GZIP = Gzip()
ZSTD = Decompress("zstd", imagecodecs.zstd_decode)
BLOSC = Blosc()
LZ4_HDF5 = Decompress("lz4", imagecodecs.lz4h5_decode)
LZ4_NUMCODECS = SizedLz4()
LZF = Decompress("lzf", imagecodecs.lzf_decode)
BZIP2 = Bzip2()


def may_follow(step: Step) -> bool:
    """Tell whether `step` can be undone where all that is known of its result is how long it is at most."""
    return step.grows is not None or isinstance(step, Decompress | Bzip2)


def first_unsized(steps: Sequence[Step]) -> Step | None:
    """Return the first step that stands behind a compressor and cannot; None where all can be undone."""
    inner = [number for number, step in enumerate(steps) if step.grows is None]
    return next((step for step in steps[inner[0] + 1 :] if not may_follow(step)), None) if inner else None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How the chunks of one volume are stored."""

    steps: tuple[Step, ...]
    """In the order of writing."""
    nbytes: int
    """Bytes of a decoded chunk; every chunk has as many, those at the edges too."""
    is_shuffled: bool = False
    """Whether the bytes of the elements lie in planes, one for each place in the element."""
    shift: int = 0
    """Place of the first step in the filter mask: 1 where the shuffle has place 0."""

    @property
    def has_filters(self) -> bool:
        """Whether chunks are stored otherwise than as their bytes."""
        return bool(self.steps) or self.is_shuffled

    def decode(self, data: Bytes, *, mask: int = 0, span: tuple[int, int] | None = None) -> tuple[Bytes, bool]:
        """Return a chunk's bytes, and whether they are still shuffled.

        The result is `data` itself, or this thread's scratch. Bit i of `mask` tells that filter i was left out. With
        a `span`, bytes before and behind it may be anything.

        Raises
        ------
        DataError
            When the data are damaged or not as many as they should be; nothing beyond `nbytes` is ever written.
        """
        is_decompressed = False
        try:
            for place in reversed(range(len(self.steps))):
                if mask >> (place + self.shift) & 1:
                    continue
                step = self.steps[place]
                if step.grows is None:
                    if is_decompressed:  # it lies where this step would write
                        moved = _between.stored(len(data))
                        np.copyto(moved, data)
                        data = moved
                    is_decompressed = True
                if place == 0 and span and not self.is_shuffled and isinstance(step, Blosc):
                    data = step.undo_part(data, self.nbytes, span)
                else:
                    data = step.undo(data, self._size_below(place, mask))
        except (ValueError, RuntimeError, TypeError) as error:
            raise DataError(found=str(error) or type(error).__name__, expected="decodable data") from error
        if len(data) != self.nbytes:
            raise DataError(found=f"{len(data)} bytes", expected=f"{self.nbytes}")
        return data, self.is_shuffled and not mask & 1

    def decode_into(self, out: Bytes, data: Bytes, *, mask: int = 0) -> bool:
        """Decode a chunk into `out`, of `nbytes`; return whether its bytes are still shuffled.

        Compressors write into `out` themselves. What a checksum inside a compressor was taken of, and what was stored
        without its filters, is copied there.

        Raises
        ------
        DataError
            As `decode`; `out` may hold anything then.
        """
        with scratch.lending(out):
            found, is_shuffled = self.decode(data, mask=mask)
        if address(found) != address(out):
            np.copyto(out, found)
        return is_shuffled

    def _size_below(self, place: int, mask: int) -> int:
        """Return how many bytes step `place` was given; negative, and the most, where a compressor decides that."""
        size, is_known = self.nbytes, True
        for earlier in range(place):
            if mask >> (earlier + self.shift) & 1:
                continue
            grows = self.steps[earlier].grows
            is_known &= grows is not None
            size = longest_stored(size, is_plain=False) if grows is None else size + grows
        return size if is_known else -size
