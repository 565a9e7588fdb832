"""Contents: what generated voxels hold, and the seed that it follows from."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from voxload.benchmark.matter import Matter
from voxload.benchmark.noise import Noise
from voxload.benchmark.pattern import Pattern, Values
from voxload.errors import UsageError


class Kind(enum.StrEnum):
    """Kinds of values; any block of each can be made again by itself, and so verified."""

    COUNTS = "counts"
    """Dark matter: integers that codecs make three to six times smaller, as those of real universes."""
    FLOATS = "floats"
    """Random bits as floats: no codec makes them smaller."""
    PATTERN = "pattern"
    """Any type over its whole range; no codec makes its integers smaller."""


_MAKERS: dict[Kind, Callable[[np.dtype[Any], int], Values]] = {
    Kind.COUNTS: Matter,
    Kind.FLOATS: Noise,
    Kind.PATTERN: Pattern,
}


@dataclass(frozen=True, slots=True)
class Contents:
    """A kind of values and a seed."""

    kind: Kind = Kind.PATTERN
    """What voxels hold."""
    seed: int = 0
    """Seed of all samples, 0 or more."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UsageError("seed", found=str(self.seed), expected="0 or more")

    def values(self, dtype: np.dtype[Any]) -> Values:
        """Return the values; raises UsageError when this kind has none of that type."""
        return _MAKERS[self.kind](dtype, self.seed)
