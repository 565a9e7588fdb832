"""FieldLayout: shape and type of one field's block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """Shape and type of one field's block."""

    shape: tuple[int, ...]
    """(C, d, h, w) with halo, in voxels."""
    dtype: np.dtype[Any]
    """Stored type in native byte order."""
    is_packed: bool = False
    """Whether stored numbers stand for others, floats; see `voxload.data.decoding`."""

    @property
    def nbytes(self) -> int:
        """Bytes of the block."""
        return prod(self.shape) * self.dtype.itemsize


def new_blocks(layout: Sequence[FieldLayout]) -> list[npt.NDArray[Any]]:
    """Return new arrays, of undefined contents, for the blocks of a sample."""
    return [np.empty(one.shape, one.dtype) for one in layout]
