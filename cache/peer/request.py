"""Request: what a rank asks another one for, as bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self

import numpy as np

from voxload.cache.block import BlockKey
from voxload.errors import DataError
from voxload.geometry import Boundary, Box

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
