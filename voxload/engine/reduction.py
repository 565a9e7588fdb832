"""Poolings whose result is small and the same on every rank: adaptive poolings, means and maxima over the volume.

Every rank reduces what it has; sums are added up over the sample group, and maxima gathered line by line.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxload.engine.blocks import Blocks
from voxload.engine.form import LayerPlan, Tile
from voxload.engine.gather import gather
from voxload.engine.outside import Outside
from voxload.engine.passage import Passage
from voxload.engine.plan import FIRST_AXIS, plan_axis
from voxload.engine.statistics import wide_type
from voxload.engine.tensors import sent
from voxload.engine.total import all_sum
from voxload.engine.twin import with_forward
from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES

_AXES = range(len(SPATIAL_AXES))


@dataclass(frozen=True, slots=True)
class Reduction:
    """The split form of a pooling with a whole result, (B, C, M_d, M_h, M_w)."""

    kind: str
    """Name of the layer's class."""
    sizes: tuple[int | None, ...]
    """Outputs per axis; None for as many as inputs."""
    is_maximum: bool
    """Whether windows give their maximum instead of their mean."""

    def plan(self, blocks: Blocks, wanted: Blocks | None, *, min_width: int) -> LayerPlan:  # noqa: ARG002 - see Form
        """Return the plan for an input cut into `blocks`; its result is the volume's own cut, which is not used."""
        if not self.is_maximum:
            return LayerPlan(blocks, blocks)
        gathers = []
        for axis in reversed(_AXES):
            count, ranks = self._count(axis, blocks.shape[axis]), len(blocks.bounds[axis]) - 1
            bounds = tuple(count * place for place in range(ranks + 1))
            gathers.append(plan_axis(axis, bounds, ((0, bounds[-1]),) * ranks, Outside.CONSTANT))
        return LayerPlan(blocks, blocks, tuple(gathers))

    def run(self, layer: nn.Module, x: Tensor, tile: Tile, passage: Passage) -> Tensor:
        """Return the whole result on every rank; see Form."""
        y: Tensor = layer(x, tile, passage)
        return y

    def reduced(self, x: Tensor, tile: Tile, passage: Passage) -> Tensor:
        """Return the whole result, without a layer."""
        return self._maximum(x, tile, passage) if self.is_maximum else self._mean(x, tile, passage)

    def _mean(self, x: Tensor, tile: Tile, passage: Passage) -> Tensor:
        """Add up every rank's part of every window's mean."""
        part = x.to(wide_type(x))
        for axis in _AXES:
            # The axis at hand is always the first one left; its outputs go behind all others.
            weights = sent(self._weights(axis, tile).to(part.dtype), x.device)
            part = torch.tensordot(part, weights, dims=([FIRST_AXIS], [1]))
        return all_sum(part, passage.exchange).to(x.dtype)

    def _maximum(self, x: Tensor, tile: Tile, passage: Passage) -> Tensor:
        """Take maxima axis by axis, last axis first: of equal voxels the first in memory's order wins, as in torch."""
        pads = [number for extent in reversed(tile.extents) for number in (0, int(extent == 0))]
        x = functional.pad(x, pads, value=-inf) if any(pads) else x
        parts = {part.axis: part for part in tile.parts}
        for axis in reversed(_AXES):
            dim = FIRST_AXIS + axis
            x = torch.cat([_window_maximum(x, dim, window) for window in self._windows(axis, tile)], dim)
            if axis in parts:
                x = gather(x, parts[axis], fill=-inf, exchange=passage.exchange)
                ranks = torch.split(x, self._count(axis, tile.shape[axis]), dim)
                x = torch.stack(ranks, dim).max(dim).values
        return x

    def _count(self, axis: int, extent: int) -> int:
        size = self.sizes[axis]
        return extent if size is None else size

    def _windows(self, axis: int, tile: Tile) -> list[tuple[int, int]]:
        """Return, per output, its window's part in this rank's block, which may be empty."""
        count, extent = self._count(axis, tile.shape[axis]), tile.shape[axis]
        # A block without voxels stands as one of -inf: it must stay part of the graph.
        first, stop = tile.first[axis], tile.first[axis] + max(tile.extents[axis], 1)
        found = []
        for index in range(count):
            lo, hi = index * extent // count, -(-(index + 1) * extent // count)
            is_stand_in = tile.extents[axis] == 0 and index == 0
            lo, hi = (first, stop) if is_stand_in else (max(lo, first), min(hi, first + tile.extents[axis]))
            found.append((lo - first, max(hi, lo) - first))
        return found

    def _weights(self, axis: int, tile: Tile) -> Tensor:
        """Return the share of each of this rank's voxels in each output along `axis`, (outputs, voxels)."""
        count, extent = self._count(axis, tile.shape[axis]), tile.shape[axis]
        weights = torch.zeros(count, tile.extents[axis], dtype=torch.float64)
        for index in range(count):
            lo, hi = index * extent // count, -(-(index + 1) * extent // count)
            first = tile.first[axis]
            weights[index, max(lo - first, 0) : max(hi - first, 0)] = 1 / (hi - lo)
        return weights


def _window_maximum(x: Tensor, dim: int, window: tuple[int, int]) -> Tensor:
    """Return the first of the largest values in `window` along `dim`, which is kept; -inf for an empty window."""
    lo, hi = window
    if hi <= lo:
        return torch.full_like(x.narrow(dim, 0, 1), -inf)
    return x.narrow(dim, lo, hi - lo).max(dim, keepdim=True).values


def split_adaptive_pool(layer: Any, _split: tuple[bool, ...]) -> tuple[Reduction, nn.Module]:
    """Return the form of AdaptiveAvgPool3d or AdaptiveMaxPool3d; raises UsageError for ``return_indices``."""
    if getattr(layer, "return_indices", False):
        raise UsageError(type(layer).__name__, found="return_indices=True", expected="return_indices=False")
    size = layer.output_size
    sizes = tuple(size) if isinstance(size, tuple | list) else (size,) * len(SPATIAL_AXES)
    form = Reduction(type(layer).__name__, sizes, isinstance(layer, nn.AdaptiveMaxPool3d))
    return form, with_forward(layer, lambda _, x, tile, passage: form.reduced(x, tile, passage))


def volume_mean(name: str) -> Reduction:
    """Return the form of a mean over all three spatial dimensions, which it keeps."""
    return Reduction(name, (1, 1, 1), is_maximum=False)
