"""Codec: how a tier packs blocks, so that it holds more of them.

``bitshuffle-lz4`` is for integers: counts use few of their bits, and the planes of the others are zeros. Each `_PIECE`
bytes of a block stand by themselves: four bytes of length, little-endian, and that many bytes of an LZ4 block (no frame
header) of the bitshuffled piece; or, where the length is that of the piece, the piece as it is. A piece fits into a
core's cache, so that sorting bits and decoding LZ4 are two passes over memory that is near.

Sources: bitshuffle 0.5, ``bshuf_bitshuffle`` with its default block size; LZ4 block format 1.10. imagecodecs wraps
both, writes into a given array and holds no interpreter lock.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import imagecodecs
import numpy as np

from voxload.errors import UsageError
from voxload.readers.scratch import Bytes, Scratch

_PIECE = 2**20
"""A multiple of eight elements of any type."""
_LENGTH = 4
_WORTH = 0.95
"""A first piece that shrinks less tells that the block is not worth packing."""
_planes = Scratch()
"""Each thread's buffer for one piece whose bits are sorted."""

_shuffle: Callable[..., Any] = imagecodecs.bitshuffle_encode
_unshuffle: Callable[..., Any] = imagecodecs.bitshuffle_decode
_encode_lz4: Callable[..., Any] = imagecodecs.lz4_encode
_decode_lz4: Callable[..., Any] = imagecodecs.lz4_decode
_Lz4Error: type[Exception] = imagecodecs.Lz4Error


class Codec(enum.Enum):
    """What a tier does to blocks."""

    NONE = "none"
    """Stores them as they are."""
    BITSHUFFLE_LZ4 = "bitshuffle-lz4"
    """Packs blocks of integers; a block that does not shrink is stored as it is."""

    @classmethod
    def parse(cls, value: str | Codec) -> Codec:
        """Return the codec named by `value`; raises UsageError on an unknown name."""
        try:
            return cls(value)
        except ValueError:
            known = " or ".join(repr(member.value) for member in cls)
            raise UsageError("tier codec", found=repr(value), expected=known) from None

    @property
    def number(self) -> int:
        """What stands for it in tables and files."""
        return _NUMBERS.index(self)

    @classmethod
    def numbered(cls, number: int) -> Codec | None:
        """Return the codec of a number; None where there is none."""
        return _NUMBERS[number] if 0 <= number < len(_NUMBERS) else None

    def suits(self, dtype: np.dtype[Any]) -> bool:
        """Tell whether blocks of a type are worth an attempt."""
        return self is Codec.BITSHUFFLE_LZ4 and dtype.kind in "iub"


_NUMBERS = (Codec.NONE, Codec.BITSHUFFLE_LZ4)
"""Stored on disks: members are added at the end."""


def pack(data: Bytes, itemsize: int, out: Bytes) -> int:
    """Pack bytes into `out`, as long as they are; return how many it took, or 0 where they did not shrink."""
    at, limit = 0, len(data)
    for start in range(0, len(data), _PIECE):
        piece = data[start : start + _PIECE]
        room = out[at + _LENGTH : limit]
        length = _pack_piece(piece, itemsize, room)
        if length == 0 or (start == 0 and len(data) > _PIECE and length > _WORTH * len(piece)):
            return 0
        out[at : at + _LENGTH] = np.frombuffer(length.to_bytes(_LENGTH, "little"), np.uint8)
        at += _LENGTH + length
    return at if at < limit else 0


def _pack_piece(piece: Bytes, itemsize: int, room: Bytes) -> int:
    """Return what a piece takes in `room`; 0 where it has none."""
    planes = _planes.decoded(len(piece))
    # As a memoryview: given an array, the function would count elements, not bytes.
    _shuffle(piece.data, itemsize=itemsize, out=planes)
    try:
        return len(_encode_lz4(planes, level=1, header=False, out=room[: len(piece) - 1]))
    except _Lz4Error:  # what it says where the room is too small
        if len(room) < len(piece):
            return 0
        room[: len(piece)] = piece
        return len(piece)


def unpack(packed: Bytes, itemsize: int, out: Bytes) -> bool:
    """Fill `out` with what was packed; False where `packed` is not that. Never reads or writes beyond either."""
    at = 0
    for start in range(0, len(out), _PIECE):
        piece = out[start : start + _PIECE]
        length = int.from_bytes(packed[at : at + _LENGTH].tobytes(), "little")
        at += _LENGTH
        if not 0 < length <= min(len(piece), len(packed) - at):
            return False
        if not _unpack_piece(packed[at : at + length], itemsize, piece):
            return False
        at += length
    return at == len(packed)


def _unpack_piece(packed: Bytes, itemsize: int, piece: Bytes) -> bool:
    if len(packed) == len(piece):
        np.copyto(piece, packed)
        return True
    planes = _planes.decoded(len(piece))
    try:
        found = len(_decode_lz4(packed, out=planes))
    except _Lz4Error:
        return False
    _unshuffle(planes.data, itemsize=itemsize, out=piece)
    return found == len(piece)
