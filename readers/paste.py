"""Paster: decoded chunks, cropped and turned, into their places in the caller's array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from voxload.readers.kernels import assemble2, assemble4, assemble8, paste
from voxload.readers.protocol import Volume
from voxload.readers.scratch import Bytes
from voxload.readers.streaming import LINE, stream

_AXES = 4
_UNSIGNED: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("u2"), 4: np.dtype("u4"), 8: np.dtype("u8")}
_ASSEMBLE: dict[int, Callable[..., None]] = {2: assemble2, 4: assemble4, 8: assemble8}
_WRAP = 2**64
_STREAMED_BYTES = 2**23
"""Arrays from this size on are written past the caches: a smaller one may still be there when it is used."""


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """How the elements of every chunk lie in its decoded bytes."""

    extents: tuple[int, ...]
    """Of a chunk, in stored axis order."""
    strides: tuple[int, ...]
    """Elements between neighbours, in stored axis order."""
    itemsize: int
    """Bytes of an element: 1, 2, 4 or 8."""
    is_swapped: bool
    """Whether the bytes of each element stand in the other order than this machine's."""

    @classmethod
    def of(cls, extents: tuple[int, ...], dtype: np.dtype[Any], *, turned: tuple[int, ...] | None = None) -> ChunkShape:
        """Return the shape of chunks in C order, or with their axes stored in the order `turned`."""
        order = turned or tuple(range(len(extents)))
        strides = [0] * len(extents)
        step = 1
        for axis in reversed(order):
            strides[axis] = step
            step *= extents[axis]
        return cls(extents, tuple(strides), dtype.itemsize, not dtype.isnative)


class Paster:
    """Writes parts of chunks into one array; safe to use from many threads at once.

    Parameters
    ----------
    shape
        How the elements of every chunk lie.
    view
        The caller's array with its axes in stored order, for which `fits` holds.
    """

    def __init__(self, shape: ChunkShape, view: Volume) -> None:
        width = shape.itemsize
        steps = [stride // width for stride in view.strides]
        span = 1 + sum((extent - 1) * step for extent, step in zip(view.shape, steps, strict=True))
        bits: npt.NDArray[Any] = view.view(_UNSIGNED[width])
        self._elements: npt.NDArray[Any] = as_strided(bits, (span,), (width,))
        self._bytes: Bytes = self._elements.view(_UNSIGNED[1])
        self._shape = shape
        self._steps = steps
        # The axis that is contiguous in the target goes last: there the kernels copy runs.
        self._order = sorted(range(view.ndim), key=lambda axis: -steps[axis])
        self._pad = _AXES - view.ndim
        self._is_streamed = (
            view.nbytes >= _STREAMED_BYTES
            and self._bytes.ctypes.data % LINE == 0
            and steps[self._order[-1]] == shape.strides[self._order[-1]] == 1
            and all(steps[axis] * width % LINE == 0 for axis in self._order[:-1])
        )

    @staticmethod
    def fits(view: Volume) -> bool:
        """Tell whether the kernels can write into `view` as it is."""
        width = view.dtype.itemsize
        return (
            width in _UNSIGNED
            and view.size > 0
            and view.flags.aligned
            and view.flags.writeable
            and all(stride >= 0 and stride % width == 0 for stride in view.strides)
        )

    def paste(
        self, data: Bytes, lengths: Sequence[int], starts: Sequence[int], places: Sequence[int], *, is_shuffled: bool
    ) -> None:
        """Write a part of a decoded chunk to its place; all in stored axis order, and inside chunk and array.

        Parameters
        ----------
        data
            The chunk's decoded bytes.
        lengths
            Extents of the part.
        starts
            Its first element, counted from the chunk's start.
        places
            Where that goes, counted from the array's start.
        is_shuffled
            Whether `data` are planes of bytes.
        """
        shape, width = self._shape, self._shape.itemsize
        source: npt.NDArray[Any] = data.view(_UNSIGNED[width])
        first = to = 0
        for axis, step in enumerate(self._steps):
            first += starts[axis] * shape.strides[axis]
            to += places[axis] * step
        # Elements that do not lie at a multiple of their width are put together byte by byte.
        if width == 1 or not (is_shuffled or shape.is_swapped or not source.flags.aligned):
            run = lengths[self._order[-1]] * width
            if self._is_streamed and run % LINE == 0 and to * width % LINE == 0:
                geometry = self._geometry(lengths, width, width, first * width, to * width)
                geometry[_AXES - 1] = run // LINE
                stream(data, self._bytes, geometry)
            else:
                paste(source, self._elements, self._geometry(lengths, 1, 1, first, to))
            return
        apart = 1 if is_shuffled else width
        plane = data.size // width if is_shuffled else 1
        first *= apart
        if shape.is_swapped:
            first, plane = first + (width - 1) * plane, -plane % _WRAP
        geometry = self._geometry(lengths, apart, width, first, to * width)
        _ASSEMBLE[width](data, self._bytes, geometry, np.uint64(plane))

    def _geometry(
        self, lengths: Sequence[int], in_source: int, in_target: int, first: int, to: int
    ) -> npt.NDArray[np.uint64]:
        """Return a kernel's geometry; steps are scaled to what source and target count in."""
        order, pad = self._order, self._pad
        strides, steps = self._shape.strides, self._steps
        numbers = [1] * pad + [lengths[axis] for axis in order]
        numbers += [0] * pad + [strides[axis] * in_source for axis in order]
        numbers += [0] * pad + [steps[axis] * in_target for axis in order]
        numbers += (first, to)
        return np.array(numbers, np.uint64)
