"""Paster: what writes the rows of a plan, as they are or as another type."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from voxload.errors import UsageError
from voxload.readers.castkernels import Caster
from voxload.readers.kernels import Table, paste, paste_mapped
from voxload.readers.parts import ChunkShape
from voxload.readers.protocol import CASTS, VolumeInfo
from voxload.readers.scratch import Bytes


class Paster(Protocol):
    """Writes rows of a plan; safe to use from many threads at once."""

    def paste(self, source: Bytes, table: Table, span: tuple[int, int], *, is_shuffled: bool) -> None:
        """Paste rows ``[begin, end)`` out of one decoded chunk."""
        ...

    def paste_mapped(self, table: Table, span: tuple[int, int]) -> None:
        """Paste rows whose FIRST and STOP are addresses, of memory that is not shuffled."""
        ...


class Copier:
    """Pastes voxels as they are; safe to use from many threads at once."""

    def __init__(self, shape: ChunkShape) -> None:
        self._width, self._is_swapped = shape.itemsize, shape.is_swapped and shape.itemsize > 1

    def paste(self, source: Bytes, table: Table, span: tuple[int, int], *, is_shuffled: bool) -> None:
        """Paste rows ``[begin, end)`` out of one decoded chunk."""
        paste(source, table, *span, self._width, is_shuffled, self._is_swapped)

    def paste_mapped(self, table: Table, span: tuple[int, int]) -> None:
        """Paste rows whose FIRST and STOP are addresses."""
        paste_mapped(table, *span, self._width, self._is_swapped)


def paster(shape: ChunkShape, target: np.dtype[Any]) -> Paster:
    """Return what pastes chunks of `shape` as `target`: the same type, or one of the protocol's `CASTS`.

    Raises UsageError for any other type.
    """
    if target == shape.dtype:
        return Copier(shape)
    if target not in CASTS:
        expected = f"{shape.dtype}, or {', '.join(str(dtype) for dtype in CASTS)}"
        raise UsageError("view", found=str(target), expected=expected)
    return Caster(shape.dtype, target, is_swapped=shape.is_swapped and shape.itemsize > 1)


def warm(info: VolumeInfo, target: npt.DTypeLike) -> None:
    """Compile what reading a volume as `target` needs, so that its first read does not wait for it.

    Takes seconds the first time on a machine, milliseconds afterwards, and nothing where `target` is the stored type.

    Raises
    ------
    UsageError
        When `target` is neither the stored type nor one of the protocol's `CASTS`.
    """
    paster(ChunkShape.of(info.shape, info.dtype), np.dtype(target))
