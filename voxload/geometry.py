"""Boxes, halos and boundaries: pure integer arithmetic on voxel indices.

Rules of this file: integers in, frozen values out; no array, no file, no rank. Every interval is half-open.
"""

from __future__ import annotations

import enum
import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from voxload.errors import UsageError

SPATIAL_AXES = "DHW"
"""Order of the spatial axes in every shape, box and grid."""


class Boundary(enum.StrEnum):
    """What lies outside a sample."""

    ZERO = "zero"
    """Zeros, as a convolution with zero padding sees them."""
    PERIODIC = "periodic"
    """The sample again: index i means i modulo the extent, as in a simulated universe."""

    @classmethod
    def parse(cls, value: str | Boundary) -> Boundary:
        """Return the boundary named by `value`; raises UsageError on an unknown name."""
        try:
            return cls(value)
        except ValueError:
            known = " or ".join(repr(str(member)) for member in cls)
            raise UsageError("boundary", found=repr(value), expected=known) from None


@dataclass(frozen=True, slots=True)
class Box:
    """A half-open block of voxels ``[start, stop)`` in global indices, one pair per axis.

    Indices may be negative or lie beyond a sample's extent: a block with its halo usually does.

    Examples
    --------
    >>> Box((0, 0, 0), (4, 4, 2)).shape
    (4, 4, 2)
    """

    start: tuple[int, ...]
    """First index per axis."""
    stop: tuple[int, ...]
    """One past the last index per axis."""

    def __post_init__(self) -> None:
        if len(self.start) != len(self.stop):
            raise UsageError("Box", found=f"start {self.start} and stop {self.stop}", expected="as many axes in both")
        if any(map(operator.gt, self.start, self.stop)):
            raise UsageError(
                "Box", found=f"start {self.start}, stop {self.stop}", expected="start <= stop on every axis"
            )

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Box:
        """Return the box that covers all of `shape`."""
        return cls((0,) * len(shape), tuple(shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent per axis, in voxels."""
        return tuple(map(operator.sub, self.stop, self.start))

    @property
    def size(self) -> int:
        """Number of voxels."""
        return prod(self.shape)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Index expression of this box in an array that starts at the origin."""
        return tuple(map(slice, self.start, self.stop))

    def shift(self, offset: Sequence[int]) -> Box:
        """Return the box moved by `offset` voxels; raises UsageError where it has other axes."""
        if len(offset) != len(self.start):
            raise UsageError("Box.shift", found=f"offset {tuple(offset)}", expected=f"{len(self.start)} axes")
        return Box(tuple(map(operator.add, self.start, offset)), tuple(map(operator.add, self.stop, offset)))

    def relative_to(self, origin: Sequence[int]) -> Box:
        """Return the box in indices that count from `origin`."""
        return self.shift(tuple(map(operator.neg, origin)))

    def expand(self, halo: Halo) -> Box:
        """Return the box with `halo` voxels more on each side; it may reach outside the sample."""
        return Box(
            tuple(lo - by for lo, by in zip(self.start, halo.low, strict=True)),
            tuple(hi + by for hi, by in zip(self.stop, halo.high, strict=True)),
        )

    def intersect(self, other: Box) -> Box | None:
        """Return the voxels that both boxes hold, or None where there are none."""
        start = tuple(max(a, b) for a, b in zip(self.start, other.start, strict=True))
        stop = tuple(min(a, b) for a, b in zip(self.stop, other.stop, strict=True))
        if any(lo >= hi for lo, hi in zip(start, stop, strict=True)):
            return None
        return Box(start, stop)

    def contains(self, other: Box) -> bool:
        """Tell whether every voxel of `other` lies in this box."""
        return all(a <= b for a, b in zip(self.start, other.start, strict=True)) and all(
            a >= b for a, b in zip(self.stop, other.stop, strict=True)
        )

    def __str__(self) -> str:
        return "[" + ", ".join(f"{lo}:{hi}" for lo, hi in zip(self.start, self.stop, strict=True)) + "]"


@dataclass(frozen=True, slots=True)
class Halo:
    """Voxels wanted around a block: `low` before it and `high` after it, per axis."""

    low: tuple[int, ...]
    """Voxels before the block, per axis."""
    high: tuple[int, ...]
    """Voxels after the block, per axis."""

    def __post_init__(self) -> None:
        if len(self.low) != len(self.high) or any(width < 0 for width in (*self.low, *self.high)):
            raise UsageError("halo", found=f"low {self.low}, high {self.high}", expected="widths of 0 or more per axis")

    @classmethod
    def parse(cls, value: int | Sequence[int] | Halo) -> Halo:
        """Return a three-axis halo from one width, one width per axis, or a Halo."""
        if isinstance(value, Halo):
            return value
        try:
            # index() takes numpy's integers too, and refuses 1.0, "1" and None.
            one_each = tuple(value) if isinstance(value, Sequence) else (value,) * len(SPATIAL_AXES)
            widths = tuple(operator.index(width) for width in one_each)
        except TypeError:
            widths = ()
        if len(widths) != len(SPATIAL_AXES):
            raise UsageError("halo", found=repr(value), expected="one int, or three for (d, h, w)")
        return cls(widths, widths)

    def __bool__(self) -> bool:
        return any((*self.low, *self.high))


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a box that may leave the sample: where it is stored and where it goes."""

    source: Box
    """Voxels inside the sample."""
    target: Box
    """The same voxels in indices that count from the box's own start."""


def _runs(start: int, stop: int, extent: int, boundary: Boundary) -> Iterator[tuple[int, int, int]]:
    """Cut ``[start, stop)`` into stored runs ``(source start, source stop, target start)`` on one axis."""
    if boundary is Boundary.ZERO:
        lo, hi = max(start, 0), min(stop, extent)
        if lo < hi:
            yield lo, hi, lo - start
        return
    position = start
    while position < stop:
        source = position % extent
        length = min(extent - source, stop - position)
        yield source, source + length, position - start
        position += length


def pieces(box: Box, shape: Sequence[int], boundary: str | Boundary) -> tuple[Piece, ...]:
    """Cut `box`, which may leave a sample of `shape`, into parts that lie inside it.

    With ``zero`` the voxels that no piece covers are outside the sample; with ``periodic`` the pieces cover
    the box, and one stored voxel may serve several times.

    Examples
    --------
    >>> [str(p.source) for p in pieces(Box((-1,), (2,)), (4,), Boundary.PERIODIC)]
    ['[3:4]', '[0:2]']
    """
    if len(shape) != len(box.start) or min(shape, default=1) <= 0:
        raise UsageError("sample shape", found=str(tuple(shape)), expected=f"{len(box.start)} extents of 1 or more")
    return _pieces(box, tuple(shape), boundary if type(boundary) is Boundary else Boundary.parse(boundary))


@lru_cache(maxsize=1024)
def _pieces(box: Box, shape: tuple[int, ...], outside: Boundary) -> tuple[Piece, ...]:
    """Return the parts; remembered, for each rank cuts the same block out of every sample."""
    per_axis = [list(_runs(lo, hi, extent, outside)) for lo, hi, extent in zip(box.start, box.stop, shape, strict=True)]
    found = []
    for runs in itertools.product(*per_axis):
        source = Box(tuple(run[0] for run in runs), tuple(run[1] for run in runs))
        target = Box((0,) * len(runs), source.shape).shift(tuple(run[2] for run in runs))
        found.append(Piece(source, target))
    return tuple(found)


def split(extent: int, parts: int) -> tuple[int, ...]:
    """Return the ``parts + 1`` bounds that cut `extent` voxels into blocks whose sizes differ by one at most.

    Raises UsageError when there are more parts than voxels: an empty block has nothing to read.

    Examples
    --------
    >>> split(10, 4)
    (0, 2, 5, 7, 10)
    """
    if parts < 1:
        raise UsageError("number of parts", found=str(parts), expected="1 or more")
    if parts > extent:
        raise UsageError(
            f"an axis of {extent} voxels over {parts} ranks",
            found="more ranks than voxels",
            remedy="use a smaller spatial grid on that axis",
        )
    return tuple(index * extent // parts for index in range(parts + 1))


def chunks_touched(box: Box, chunk: Sequence[int]) -> Box:
    """Return the range of chunk coordinates, as a Box, that hold the voxels of `box`; empty along its empty axes.

    Examples
    --------
    >>> str(chunks_touched(Box((3, 0), (9, 4)), (4, 4)))
    '[0:3, 0:1]'
    """
    return Box(
        tuple(lo // width for lo, width in zip(box.start, chunk, strict=True)),
        tuple(
            -(-hi // width) if hi > lo else lo // width
            for lo, hi, width in zip(box.start, box.stop, chunk, strict=True)
        ),
    )


def slabs(box: Box, chunk: Sequence[int], *, most: int, axis: int = 0) -> Iterator[Box]:
    """Yield parts that cover `box`, of at most `most` voxels each or of one chunk, in C order.

    Borders lie between chunks, so that none is decoded twice; `box` may reach outside the sample.

    Examples
    --------
    >>> [str(part) for part in slabs(Box((3, 0), (9, 4)), (4, 4), most=16)]
    ['[3:4, 0:4]', '[4:8, 0:4]', '[8:9, 0:4]']
    """
    if box.size <= most or axis == len(chunk):
        yield box
        return
    layer = box.size // box.shape[axis] * chunk[axis]
    thickness = max(most // layer, 1) * chunk[axis]
    begin = box.start[axis]
    while begin < box.stop[axis]:
        end = min((begin // thickness + 1) * thickness, box.stop[axis])
        part = Box((*box.start[:axis], begin, *box.start[axis + 1 :]), (*box.stop[:axis], end, *box.stop[axis + 1 :]))
        yield from slabs(part, chunk, most=most, axis=axis + 1)
        begin = end


def parse_axes(subject: str, letters: Any, *, least: int = 1) -> tuple[int, ...]:
    """Return the spatial axes that `letters` name, such as ``"HW"``.

    Raises UsageError for other letters, a letter twice, or fewer than `least`.
    """
    named = letters.upper() if isinstance(letters, str) else ""
    if len(named) < least or len(set(named)) < len(named) or set(named) - set(SPATIAL_AXES):
        wanted = f"{least} or more of {SPATIAL_AXES!r}, each once"
        raise UsageError(f"axes of {subject}", found=repr(letters), expected=wanted)
    return tuple(SPATIAL_AXES.index(letter) for letter in named)
