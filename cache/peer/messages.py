"""Messages: how a request for a block, or its answer, looks on a channel.

Framing: how a request and a block look on a channel. A request is its length and its JSON. An answer is one word and
a length, and then the block in pieces, each with the CRC-32C of the block up to its end, which began with the block's
digest: bytes of another block, in another order, or damaged on the way do not pass.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self

import numpy as np

from voxload.cache.form import checksum
from voxload.cache.peer.channel import Channel
from voxload.cache.protocol import Answer, BlockKey
from voxload.errors import DataError
from voxload.geometry import Boundary, Box
from voxload.readers.scratch import Bytes

LONGEST = 65_536
"""Bytes of a request that are looked at, at most."""


@dataclass(frozen=True, slots=True)
class Request:
    """A block, the form that it must have, and how long to wait for it."""

    key: BlockKey
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    wait: float
    """Seconds."""

    @property
    def nbytes(self) -> int:
        """Bytes of the block."""
        return prod(self.shape) * self.dtype.itemsize

    def encode(self) -> bytes:
        """Return the request as JSON."""
        box = (self.key.box.start, self.key.box.stop)
        named = (self.key.data, self.key.sample, self.key.field, box, str(self.key.boundary))
        # numpy has no type string for the types of ml_dtypes, but knows their names.
        dtype = self.dtype.name if self.dtype.kind == "V" else self.dtype.str
        return json.dumps({"key": named, "dtype": dtype, "shape": self.shape, "wait": self.wait}).encode()

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        """Return the request that was encoded; raises DataError where this is none."""
        if len(encoded) > LONGEST:
            raise DataError("request", found=f"{len(encoded)} bytes", expected=f"at most {LONGEST}")
        try:
            words = json.loads(encoded)
            data, sample, field, (start, stop), boundary = words["key"]
            box = Box(_integers(start), _integers(stop))
            key = BlockKey(str(data), str(sample), str(field), box, Boundary(boundary))
            dtype, shape, wait = np.dtype(str(words["dtype"])), _integers(words["shape"]), float(words["wait"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise DataError("request", found=str(error), expected="a block's key, type, shape and patience") from error
        if dtype.hasobject or min(shape, default=0) < 0 or not 0 <= wait < float("inf"):
            raise DataError("request", found=f"type {dtype}, shape {shape}, wait {wait}", expected="a block of numbers")
        return cls(key, dtype, shape, wait)


def _integers(values: Sequence[int]) -> tuple[int, ...]:
    if not all(isinstance(value, int) for value in values):
        raise ValueError(f"{values!r} instead of integers")
    return tuple(values)


PIECE = 2**20
"""Bytes of a piece: many enough that a piece's own cost does not count, and still in a core's cache when they are
summed after they were copied."""
_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<8sQ")
_CRC_BYTES = 4
_ANSWERS = {answer.value.encode().ljust(8): answer for answer in (Answer.GOT, Answer.ABSENT, Answer.WRONG)}
_WORDS = {answer: word for word, answer in _ANSWERS.items()}


def send_request(channel: Channel, request: Request, deadline: float) -> None:
    """Ask; raises OSError."""
    text = request.encode()
    channel.write(_LENGTH.pack(len(text)) + text, deadline)


def receive_request(channel: Channel, deadline: float) -> Request:
    """Return what is asked; raises OSError, and DataError at what is no request, before more than one is taken."""
    (count,) = _LENGTH.unpack(channel.read(_LENGTH.size, deadline))
    if count > LONGEST:
        raise DataError("request", found=f"{count} bytes", expected=f"at most {LONGEST}")
    return Request.decode(channel.read(count, deadline))


def send_head(channel: Channel, answer: Answer, nbytes: int, deadline: float) -> None:
    """Say what came of a request, and how many bytes follow; raises OSError."""
    channel.write(_HEAD.pack(_WORDS[answer], nbytes), deadline)


def pieces(key: BlockKey, block: Bytes) -> Iterator[tuple[Bytes, bytes]]:
    """Yield a block in pieces, each with its checksum."""
    crc = checksum(key.digest)
    for start in range(0, len(block), PIECE):
        part = block[start : start + PIECE]
        crc = checksum(part, crc)
        yield part, crc.to_bytes(_CRC_BYTES, "little")


def receive_head(channel: Channel, deadline: float) -> tuple[Answer, int]:
    """Return what came of a request, and how many bytes follow; raises OSError, also at another language."""
    word, nbytes = _HEAD.unpack(channel.read(_HEAD.size, deadline))
    if word not in _ANSWERS:
        raise ConnectionAbortedError("another language")
    return _ANSWERS[word], nbytes


def receive_block(channel: Channel, key: BlockKey, target: Bytes, deadline: float) -> bool:
    """Fill `target` and compare it there with the checksums; tell whether they agree. Raises OSError."""
    view, crc = target.data, checksum(key.digest)
    for start in range(0, len(target), PIECE):
        part = view[start : start + PIECE]
        channel.read_into(part, deadline)
        crc = checksum(target[start : start + PIECE], crc)
        if channel.read(_CRC_BYTES, deadline) != crc.to_bytes(_CRC_BYTES, "little"):
            return False
    return True
