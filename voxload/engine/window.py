"""Window: which inputs an output of a convolution or a pooling reads along one axis."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from voxload.engine.reach import Interval, clamped


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
