"""Scaling: stored numbers that stand for others, value = slope * stored + intercept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from voxload.readers.protocol import Volume

_EXACT_IN_FLOAT32 = 2
"""Bytes of the largest integers that float32 holds exactly: it has 24 bits for them."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """A linear map, worked out in float64 and rounded once."""

    slope: float
    """What a step of the stored number is worth."""
    intercept: float
    """The value of a stored zero."""

    @property
    def is_identity(self) -> bool:
        """Whether stored numbers are the values."""
        return self.slope == 1 and self.intercept == 0

    def dtype(self, stored: np.dtype[Any]) -> np.dtype[Any]:
        """Return the type of the values: float32 where it holds every stored number exactly, else float64."""
        if stored.kind == "f":
            return np.dtype(np.float32 if stored.itemsize <= np.dtype(np.float32).itemsize else np.float64)
        return np.dtype(np.float32 if stored.itemsize <= _EXACT_IN_FLOAT32 else np.float64)

    def __call__(self, stored: Volume, out: Volume) -> None:
        """Fill `out` with the values; raises FloatingPointError on a value beyond its type."""
        with np.errstate(over="raise"):
            values = np.multiply(stored, self.slope, dtype=np.float64)
            values += self.intercept
            out[...] = values
