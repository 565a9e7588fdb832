"""Windows: which inputs the outputs of a layer read along one axis, and which ranks own these outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from voxload.errors import UsageError

Interval = tuple[int, int]
"""Half-open range of positions; it may leave the volume on either side."""


class Reach(Protocol):
    """Which inputs an output reads along one axis; pure integers, the same on every rank."""

    def outputs(self, extent: int) -> int:
        """Return the number of outputs over an axis of `extent` voxels; 0 where the layer does not fit."""

    def owners(self, bounds: tuple[int, ...]) -> tuple[int, ...]:
        """Return bounds of the outputs that keep most of what each reads on the rank that has it."""

    def needs(self, outputs: tuple[int, ...], extent: int) -> tuple[Interval, ...]:
        """Return, per rank, the inputs that its `outputs` read; an empty interval where it owns none."""

    def describe(self) -> str:
        """Return the settings, for the error that says that the layer does not fit."""


def even_bounds(extent: int, ranks: int, *, parts: int | None = None) -> tuple[int, ...]:
    """Return bounds that give `extent` voxels to `parts` of `ranks` ranks, evenly; the others get nothing.

    >>> even_bounds(6, 4), even_bounds(6, 4, parts=2)
    ((0, 1, 3, 4, 6), (0, 3, 3, 6, 6))
    """
    count = ranks if parts is None else parts
    # Those with a part are spread over the line, so that its ends stay near to what they held before.
    cuts = [index * extent // count for index in range(count + 1)]
    return (*(cuts[-(-place * count // ranks)] for place in range(ranks)), extent)


def collapsed(bounds: tuple[int, ...], narrowest: int) -> tuple[int, ...]:
    """Return `bounds`, or bounds over half as many ranks, a quarter..., whose blocks are `narrowest` voxels on average.

    Where the axis is long enough for all ranks and some have nothing, it is dealt out anew.

    >>> collapsed((0, 2, 4, 6, 8), 4), collapsed((0, 2, 4, 6, 8), 2), collapsed((0, 4, 4, 8, 8), 2)
    ((0, 4, 4, 8, 8), (0, 2, 4, 6, 8), (0, 2, 4, 6, 8))
    """
    ranks = len(bounds) - 1
    if narrowest < 1:
        return bounds
    parts = ranks
    while parts > 1 and bounds[-1] < narrowest * parts:
        parts = -(-parts // 2)
    idle = sum(lo == hi for lo, hi in pairwise(bounds))
    return bounds if parts == ranks and not idle else even_bounds(bounds[-1], ranks, parts=parts)


def require_fit(kind: str, axis: str, reach: Reach, extent: int) -> int:
    """Return the number of outputs over `extent` voxels; raises UsageError when there are none."""
    count = reach.outputs(extent)
    if count < 1:
        raise UsageError(
            f"{kind} over {extent} voxels along {axis}",
            found=reach.describe(),
            expected="at least one output",
        )
    return count


def clamped(inner: Sequence[int], count: int) -> tuple[int, ...]:
    """Return bounds of `count` outputs from the wanted inner ones, which may lie outside."""
    return (0, *(min(max(first, 0), count) for first in inner), count)


@dataclass(frozen=True, slots=True)
class Window:
    """Output j reads the inputs ``stride * j - low + t * dilation`` for t from 0 to ``kernel - 1``.

    The arithmetic is that of torch's own layers, ``ceil_mode`` included.

    >>> Window(kernel=3, low=1, high=1).needs((0, 4, 8), 8)
    ((-1, 5), (3, 9))
    """

    kernel: int
    """Inputs that one output reads."""
    stride: int = 1
    """Inputs between the windows of neighbouring outputs."""
    dilation: int = 1
    """Inputs between the ones that one window reads."""
    low: int = 0
    """Padding before the first voxel; negative to leave voxels out."""
    high: int = 0
    """Padding after the last voxel; negative to leave voxels out."""
    ceil: bool = False
    """Whether a last window may reach beyond the padding."""

    @property
    def span(self) -> int:
        """Inputs from the first to the last that one window reads, both counted."""
        return self.dilation * (self.kernel - 1) + 1

    def outputs(self, extent: int) -> int:
        """Return the number of outputs over an axis of `extent` voxels; 0 where no window fits."""
        room = extent + self.low + self.high - self.span
        count = (-(-room // self.stride) if self.ceil else room // self.stride) + 1
        # torch drops a last window that would start in the padding behind the volume.
        if self.ceil and (count - 1) * self.stride >= extent + self.low:
            count -= 1
        return max(count, 0)

    def owners(self, bounds: tuple[int, ...]) -> tuple[int, ...]:
        """Return the bounds of the outputs: each belongs to the rank that owns the centre of its window."""
        centre = (self.span - 1) // 2
        inner = [-(-(bound + self.low - centre) // self.stride) for bound in bounds[1:-1]]
        return clamped(inner, self.outputs(bounds[-1]))

    def needs(self, outputs: tuple[int, ...], extent: int) -> tuple[Interval, ...]:  # noqa: ARG002 - see Reach
        """Return, per rank, the inputs that its `outputs` read; an empty interval where it owns none."""
        found = []
        for first, stop in pairwise(outputs):
            start = self.stride * first - self.low
            found.append((start, start + self.stride * (stop - first - 1) + self.span if stop > first else start))
        return tuple(found)

    def describe(self) -> str:
        """Return span and padding."""
        return f"a window of {self.span} with padding {self.low} and {self.high}"


def counted(window: Window, output: int, extent: int, *, padding: bool) -> int:
    """Return the number of positions that torch divides by on one axis, for an average over window `output`."""
    start = window.stride * output - window.low
    stop = min(start + window.span, extent + window.high)
    return stop - start if padding else min(stop, extent) - max(start, 0)


@dataclass(frozen=True, slots=True)
class Spread:
    """Input i reaches the outputs ``stride * i - padding + t * dilation`` for t from 0 to ``kernel - 1``.

    >>> Spread(kernel=2, stride=2).needs((0, 5, 8), 4)
    ((0, 3), (2, 4))
    """

    kernel: int
    """Outputs that one input reaches."""
    stride: int = 1
    """Outputs between what neighbouring inputs reach."""
    dilation: int = 1
    """Outputs between the ones that one input reaches."""
    padding: int = 0
    """Outputs left out at either end."""
    extra: int = 0
    """torch's output_padding: outputs added at the far end."""

    @property
    def span(self) -> int:
        """Outputs from the first to the last that one input reaches, minus one."""
        return self.dilation * (self.kernel - 1)

    def outputs(self, extent: int) -> int:
        """Return the number of outputs over an axis of `extent` voxels."""
        return max((extent - 1) * self.stride - 2 * self.padding + self.span + self.extra + 1, 0) if extent else 0

    def owners(self, bounds: tuple[int, ...]) -> tuple[int, ...]:
        """Return bounds that leave the centre of what an input reaches on the rank that has it."""
        inner = [self.stride * bound - self.padding + self.span // 2 for bound in bounds[1:-1]]
        return clamped(inner, self.outputs(bounds[-1]))

    def needs(self, outputs: tuple[int, ...], extent: int) -> tuple[Interval, ...]:  # noqa: ARG002 - see Reach
        """Return, per rank, the inputs that reach its `outputs`, and as many beyond as cover them all.

        With a stride wider than the kernel, or with output_padding, some outputs are reached by no input; the
        layer makes them from inputs beside them, or from zeros outside, which only give the bias.
        """
        found = []
        for first, stop in pairwise(outputs):
            if first == stop:
                found.append((0, 0))
                continue
            low, high = first + self.padding, stop - 1 + self.padding
            start = min(-(-(low - self.span) // self.stride), low // self.stride)
            last = max(high // self.stride, -(-(high - self.span) // self.stride))
            found.append((start, last + 1))
        return tuple(found)

    def describe(self) -> str:
        """Return the settings."""
        return f"a transposed window of {self.span + 1} with padding {self.padding}"
