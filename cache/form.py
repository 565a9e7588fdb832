"""Form: what is kept beside a stored block, and how the block is told from any other bytes by its checksum.

CRC-32C of stored blocks, summed while they are copied; Castagnoli's polynomial, RFC 3720, appendix B.4. The package
crc32c sums without the interpreter's lock, which other bindings hold all the while: threads that check blocks would
wait for each other.

Form: what is kept beside a stored block, and how the block is told from any other bytes. The checksum of a stored
block is the CRC-32C of, one after the other: the key's digest; type and shape; the number of the codec and the
lengths, as stored and decoded; and the bytes as stored. So bytes that belong to another key, or are read at the wrong
place, in the wrong length or as the wrong type, do not agree with it. It is checked before anything is decoded: a
decoder never sees damaged bytes.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt

from voxload.cache.codec import Codec, pack, unpack
from voxload.errors import UsageError
from voxload.readers.protocol import Volume
from voxload.readers.scratch import Bytes, Scratch

PIECE = 2**20
"""Bytes that are copied before they are summed: they are still in the core's cache then."""


def checksum(data: Bytes | bytes, seed: int = 0) -> int:
    """Return the CRC-32C of what was summed to `seed`, continued by `data`."""
    return crc32c.crc32c(data if isinstance(data, bytes) else data.data, seed)


def copy_and_sum(source: Bytes, target: Bytes, seed: int = 0) -> int:
    """Copy bytes and return the checksum of what arrived, continued from `seed`.

    The sum is of the target: whatever happens to the source meanwhile, the sum is of the bytes that the caller has.
    """
    for start in range(0, len(source), PIECE):
        part = target[start : start + PIECE]
        np.copyto(part, source[start : start + PIECE])
        seed = checksum(part, seed)
    return seed


_FORM = struct.Struct("<16sIHQQ")
_packed, _whole = Scratch(), Scratch()
"""Each thread's buffers for a block as packed, and for one that its taker wants in pieces."""


def type_name(dtype: np.dtype[Any]) -> str:
    """Return a name that tells any two types of voxels apart, those of ml_dtypes too, such as ``<int16``."""
    is_big = dtype.byteorder == ">" or (dtype.byteorder == "=" and sys.byteorder == "big")
    return f"{'>' if is_big else '<'}{dtype.name}"


@lru_cache(maxsize=1024)
def kind_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Return four bytes that stand for type and shape."""
    return checksum(f"{type_name(dtype)} {shape}".encode())


def bytes_of(array: npt.NDArray[Any]) -> Bytes:
    """Return the bytes of a C-contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8)


@dataclass(frozen=True, slots=True)
class Form:
    """How a block is stored."""

    kind: int
    """`kind_of` its type and shape."""
    codec: Codec
    """How it is packed."""
    stored: int
    """Bytes as stored."""
    raw: int
    """Bytes of the block."""
    crc: int = 0
    """Checksum of all that, the key's digest and the bytes as stored."""

    def seed(self, digest: bytes) -> int:
        """Return the checksum of what comes before the bytes."""
        return checksum(_FORM.pack(digest, self.kind, self.codec.number, self.stored, self.raw))

    def suits(self, out: Volume) -> bool:
        """Tell whether `out` has the type and shape of the block; the bytes decide in the end."""
        return self.raw == out.nbytes and self.kind == kind_of(out.dtype, out.shape)

    def is_of(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
        """Tell whether the block is of a type and shape."""
        return self.raw == prod(shape) * dtype.itemsize and self.kind == kind_of(dtype, shape)

    def takes(self, digest: bytes, data: Bytes, out: Volume) -> bool:
        """Fill `out` from the bytes as stored; False, with `out` undefined, where they do not agree with this form.

        `data` may lie where others write at any time: what is checked is a copy, or the result itself. They may also
        be those of `out`, where the codec is none: then they are only checked.
        """
        if len(data) != self.stored or not self.suits(out):
            return False
        if self.codec is Codec.NONE:
            return self._takes_raw(digest, data, out)
        packed = _packed.stored(self.stored)
        if copy_and_sum(data, packed, self.seed(digest)) != self.crc:
            return False
        target = bytes_of(out) if out.flags.c_contiguous else _whole.stored(self.raw)
        is_whole = unpack(packed, out.dtype.itemsize, target)
        return is_whole and _deliver(target, out)

    def _takes_raw(self, digest: bytes, data: Bytes, out: Volume) -> bool:
        if self.raw != self.stored:
            return False
        target = bytes_of(out) if out.flags.c_contiguous else _whole.stored(self.raw)
        if np.may_share_memory(data, target):
            return checksum(data, self.seed(digest)) == self.crc
        return copy_and_sum(data, target, self.seed(digest)) == self.crc and _deliver(target, out)


def _deliver(whole: Bytes, out: Volume) -> bool:
    """Put a block where it is wanted, unless it is there."""
    if not out.flags.c_contiguous:
        np.copyto(out, whole.view(out.dtype).reshape(out.shape))
    return True


def store_form(block: Volume, codec: Codec) -> tuple[Form, Bytes]:
    """Return how a block is stored, still without its checksum, and the bytes: its own, or this thread's scratch.

    A block whose bytes do not lie in one piece is copied first. Raises UsageError for a block of Python objects.
    """
    if block.dtype.hasobject:
        raise UsageError("block", found=f"type {block.dtype}", expected="one of plain numbers")
    whole = bytes_of(np.ascontiguousarray(block))
    kind = kind_of(block.dtype, block.shape)
    if codec.suits(block.dtype):
        packed = _packed.stored(len(whole))
        length = pack(whole, block.dtype.itemsize, packed)
        if length:
            return Form(kind, codec, length, len(whole)), packed[:length]
    return Form(kind, Codec.NONE, len(whole), len(whole)), whole
