"""Stencil: a layer whose outputs read windows of its input, such as a convolution or a pooling.

The split form is always the same: gather the inputs that this rank's outputs read, then call the ordinary
layer without padding along the gathered axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxload.engine.blocks import Blocks
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.gather import FIRST_AXIS, gather
from voxload.engine.plan import AxisPlan, Part, plan_axis
from voxload.engine.window import Window
from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES, Boundary


@dataclass(frozen=True, slots=True)
class Stencil:
    """What one windowed layer reads and writes, along the three spatial axes."""

    kind: str
    """Name of the layer's class, for tables and errors."""
    windows: tuple[Window, ...]
    """One window per axis (d, h, w)."""
    boundary: Boundary
    """What the layer sees outside the volume."""
    fill: float
    """Value outside the volume, where the boundary is zero: 0, or -inf for a maximum."""
    gathered: tuple[bool, ...]
    """Axes along which the engine fetches the window's inputs; on the others the layer pads by itself."""
    counted: bool | None = None
    """None, or: divide window sums by their number of voxels, padding counted (True) or not (False)."""

    def plan(self, blocks: Blocks) -> StencilPlan:
        """Return the plan for an input cut into `blocks`; raises UsageError when no window fits."""
        cuts, gathers = [], []
        for axis, (window, bounds) in enumerate(zip(self.windows, blocks.bounds, strict=True)):
            if window.outputs(bounds[-1]) < 1:
                raise UsageError(
                    f"{self.kind} over {bounds[-1]} voxels along {SPATIAL_AXES[axis].lower()}",
                    found=f"a window of {window.span} with padding {window.low} and {window.high}",
                    expected="at least one window that fits",
                )
            owners = window.owners(bounds)
            cuts.append(owners)
            if self.gathered[axis]:
                gathers.append(plan_axis(axis, bounds, window.needs(owners), self.boundary))
        return StencilPlan(Blocks(tuple(cuts)), tuple(gathers), blocks.shape)

    def run(self, layer: nn.Module, x: Tensor, tile: Tile, exchange: Exchange) -> Tensor:
        """Return this rank's block of the output; all ranks of the sample group must call it together.

        Parameters
        ----------
        layer
            The layer without padding along the gathered axes.
        x
            This rank's block of the input, (B, C, d, h, w).
        tile
            This rank's part of the plan.
        exchange
            Carries the messages.
        """
        for part in tile.parts:
            x = gather(x, part, fill=self.fill, exchange=exchange)
        y: Tensor = layer(self._at_least_one_window(x, tile))
        for axis, extent in enumerate(tile.extents):
            if extent == 0:
                y = y.narrow(FIRST_AXIS + axis, 0, 0)
        return y if self.counted is None else y / self._divisors(tile, y)

    def _at_least_one_window(self, x: Tensor, tile: Tile) -> Tensor:
        """Extend `x` with zeros to one window along the axes where this rank owns no output.

        The layer then runs as on every other rank, hooks and all, and its parameters and `x` stay part of the
        graph: a rank that left the graph here would miss the backward messages that its peers wait for.
        """
        pads: list[int] = []
        for window, extent in zip(reversed(self.windows), reversed(tile.extents), strict=True):
            pads += [0, window.span if extent == 0 else 0]
        return functional.pad(x, pads) if any(pads) else x

    def _divisors(self, tile: Tile, like: Tensor) -> Tensor:
        """Return how many voxels each window of this rank's outputs counts, by their global positions."""
        per_axis = []
        for axis, window in enumerate(self.windows):
            extent, first = tile.shape[axis], tile.first[axis]
            counts = [
                _count(window, output, extent, padding=bool(self.counted))
                for output in range(first, first + tile.extents[axis])
            ]
            per_axis.append(torch.tensor(counts, dtype=like.dtype, device=like.device))
        return per_axis[0][:, None, None] * per_axis[1][:, None] * per_axis[2]


@dataclass(frozen=True, slots=True)
class StencilPlan:
    """The plan of one windowed layer, for all ranks of a sample group."""

    result: Blocks
    """Blocks of the output."""
    gathers: tuple[AxisPlan, ...]
    """What is fetched, axis by axis, in order; corners arrive by way of the neighbours."""
    shape: tuple[int, ...]
    """Extents of the whole input."""

    def at(self, coords: Sequence[int]) -> Tile:
        """Return the part of the rank at `coords` of its sample group."""
        box = self.result.box(coords)
        return Tile(
            parts=tuple(plan.at(coords[plan.axis]) for plan in self.gathers if not plan.idle),
            first=box.start,
            extents=box.shape,
            shape=self.shape,
        )


@dataclass(frozen=True, slots=True)
class Tile:
    """One rank's part of a StencilPlan."""

    parts: tuple[Part, ...]
    """What to fetch, in order."""
    first: tuple[int, ...]
    """Global position of this rank's first output."""
    extents: tuple[int, ...]
    """Extents of this rank's block of the output; 0 where it owns none."""
    shape: tuple[int, ...]
    """Extents of the whole input."""


def _count(window: Window, output: int, extent: int, *, padding: bool) -> int:
    """Return the number of positions that torch divides by on one axis, for an average over window `output`."""
    start = window.stride * output - window.low
    stop = min(start + window.span, extent + window.high)
    return stop - start if padding else min(stop, extent) - max(start, 0)
