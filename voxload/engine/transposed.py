"""ConvTranspose3d in split form."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from voxload.engine.form import Tile
from voxload.engine.plan import FIRST_AXIS
from voxload.engine.reach import Interval, clamped
from voxload.engine.stencil import Stencil, at_least, cropped


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


@dataclass(frozen=True, slots=True)
class Transposed:
    """Calls a transposed convolution without padding, and crops what it made to what this rank owns."""

    reaches: tuple[Spread, ...]
    """One per axis."""
    gathered: tuple[bool, ...]
    """Axes along which the layer does not pad."""

    def __call__(self, layer: nn.Module, x: Tensor, tile: Tile) -> Tensor:
        """Return this rank's outputs from the inputs that reach them."""
        y: Tensor = layer(at_least(x, (1,) * len(self.reaches), tile))
        for axis, reach in enumerate(self.reaches):
            if self.gathered[axis] and tile.extents[axis]:
                made_from = reach.stride * tile.start[axis] - reach.padding
                y = y.narrow(FIRST_AXIS + axis, tile.first[axis] - made_from, tile.extents[axis])
        return cropped(y, tile)


def split_conv_transpose3d(layer: nn.ConvTranspose3d, split: tuple[bool, ...]) -> tuple[Stencil, nn.Module]:
    """Return the stencil of `layer`, and the layer without padding along the `split` axes.

    Any kernel, stride, padding, output_padding, dilation and groups, and any cut of the output: a decoder's blocks can
    be those of the encoder that it is joined with.
    """
    padding: Any = layer.padding  # torch's own annotation allows words, which this layer refuses
    reaches = tuple(
        Spread(kernel, stride, dilation, pad, extra)
        for kernel, stride, dilation, pad, extra in zip(
            layer.kernel_size, layer.stride, layer.dilation, padding, layer.output_padding, strict=True
        )
    )
    bare = copy.copy(layer)
    bare.padding = tuple(0 if cut else reach.padding for cut, reach in zip(split, reaches, strict=True))
    bare.output_padding = tuple(0 if cut else reach.extra for cut, reach in zip(split, reaches, strict=True))
    return Stencil("ConvTranspose3d", reaches, Transposed(reaches, split), split, casts=True), bare
