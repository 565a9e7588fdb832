"""Poolings in split form: over windows, adaptive, and over the whole volume.

Poolings whose result is small and the same on every rank: adaptive poolings, means and maxima over the volume. Every
rank reduces what it has; sums are added up over the sample group, and maxima gathered line by line.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxload.engine.arithmetic.axis_plan import FIRST_AXIS, PaddingMode, plan_axis
from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.layer_plan import LayerPlan, Tile
from voxload.engine.arithmetic.windows import Window, counted
from voxload.engine.layers.convolution import Unpadded
from voxload.engine.layers.form import PassContext, with_forward
from voxload.engine.layers.stencil import Stencil, at_least, cropped
from voxload.engine.run.collectives import all_sum, gather
from voxload.engine.run.statistics import wide_type
from voxload.engine.run.tensors import sent
from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES

_AXES = range(len(SPATIAL_AXES))


@dataclass(frozen=True, slots=True)
class Averaged:
    """Divides the window sums of a pooling by the number of voxels that torch counts, from global positions."""

    windows: tuple[Window, ...]
    """One per axis."""
    counts_padding: bool
    """Whether padded voxels count."""

    def __call__(self, layer: nn.Module, x: Tensor, tile: Tile) -> Tensor:
        """Return this rank's averages from the inputs that they read."""
        y: Tensor = layer(at_least(x, tuple(window.span for window in self.windows), tile))
        return cropped(y, tile) / self._divisors(tile, y)

    def _divisors(self, tile: Tile, like: Tensor) -> Tensor:
        """Return how many voxels each window of this rank's outputs counts, by their global positions."""
        per_axis = []
        for axis, window in enumerate(self.windows):
            extent, first = tile.shape[axis], tile.first[axis]
            counts = [
                counted(window, output, extent, padding=self.counts_padding)
                for output in range(first, first + tile.extents[axis])
            ]
            per_axis.append(sent(torch.tensor(counts, dtype=like.dtype), like.device))
        return per_axis[0][:, None, None] * per_axis[1][:, None] * per_axis[2]


def split_max_pool3d(layer: nn.MaxPool3d, split: tuple[bool, ...]) -> tuple[Stencil, nn.Module]:
    """Return the stencil of `layer`, and the layer without padding along the `split` axes.

    Any kernel, stride, padding, dilation and ``ceil_mode``. Windows hold the same values in the same order as in
    one process, so ties are broken alike. Raises UsageError for ``return_indices``.
    """
    if layer.return_indices:
        raise UsageError("MaxPool3d", found="return_indices=True", expected="return_indices=False")
    windows = tuple(
        Window(
            of_axis(layer.kernel_size, axis),
            of_axis(layer.stride, axis),
            of_axis(layer.dilation, axis),
            of_axis(layer.padding, axis),
            of_axis(layer.padding, axis),
            ceil=layer.ceil_mode,
        )
        for axis in _AXES
    )
    bare = copy.copy(layer)
    bare.padding = _own_padding(windows, split)
    return Stencil("MaxPool3d", windows, _unpadded(windows), split, fill=-inf), bare


def split_avg_pool3d(layer: nn.AvgPool3d, split: tuple[bool, ...]) -> tuple[Stencil, nn.Module]:
    """Return the stencil of `layer`, and the layer without padding along the gathered axes.

    Any kernel, stride, padding, ``ceil_mode``, ``count_include_pad`` and ``divisor_override``. Where windows
    at the border count fewer voxels, the split layer sums, and the sums are divided by counts that follow from
    the windows' global positions.
    """
    windows = tuple(
        Window(
            of_axis(layer.kernel_size, axis),
            of_axis(layer.stride, axis),
            low=of_axis(layer.padding, axis),
            high=of_axis(layer.padding, axis),
            ceil=layer.ceil_mode,
        )
        for axis in _AXES
    )
    padded = any(window.low for window in windows)
    varies = layer.ceil_mode or (padded and not layer.count_include_pad)
    bare = copy.copy(layer)
    if varies and layer.divisor_override is None:
        bare.padding, bare.divisor_override = 0, 1
        finish = Averaged(windows, counts_padding=bool(layer.count_include_pad))
        return Stencil("AvgPool3d", windows, finish, (True,) * len(split)), bare
    bare.padding = _own_padding(windows, split)
    return Stencil("AvgPool3d", windows, _unpadded(windows), split), bare


def of_axis(value: int | tuple[int, ...], axis: int) -> int:
    """Return the setting of one axis: torch takes one number for all, or one each."""
    return value if isinstance(value, int) else value[axis]


def _unpadded(windows: tuple[Window, ...]) -> Unpadded:
    return Unpadded(tuple(window.span for window in windows))


def _own_padding(windows: tuple[Window, ...], split: tuple[bool, ...]) -> tuple[int, int, int]:
    """Return the padding that a layer keeps: along the axes that are not split."""
    depth, height, width = (0 if cut else window.low for window, cut in zip(windows, split, strict=True))
    return depth, height, width


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
            gathers.append(plan_axis(axis, bounds, ((0, bounds[-1]),) * ranks, PaddingMode.CONSTANT))
        return LayerPlan(blocks, blocks, tuple(gathers))

    def run(self, layer: nn.Module, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
        """Return the whole result on every rank; see Form."""
        y: Tensor = layer(x, tile, context)
        return y

    def reduced(self, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
        """Return the whole result, without a layer."""
        return self._maximum(x, tile, context) if self.is_maximum else self._mean(x, tile, context)

    def _mean(self, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
        """Add up every rank's part of every window's mean."""
        part = x.to(wide_type(x))
        for axis in _AXES:
            # The axis at hand is always the first one left; its outputs go behind all others.
            weights = sent(self._weights(axis, tile).to(part.dtype), x.device)
            part = torch.tensordot(part, weights, dims=([FIRST_AXIS], [1]))
        return all_sum(part, context.exchange).to(x.dtype)

    def _maximum(self, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
        """Take maxima axis by axis, last axis first: of equal voxels the first in memory's order wins, as in torch."""
        pads = [number for extent in reversed(tile.extents) for number in (0, int(extent == 0))]
        x = functional.pad(x, pads, value=-inf) if any(pads) else x
        parts = {part.axis: part for part in tile.parts}
        for axis in reversed(_AXES):
            dim = FIRST_AXIS + axis
            x = torch.cat([_window_maximum(x, dim, window) for window in self._windows(axis, tile)], dim)
            if axis in parts:
                x = gather(x, parts[axis], fill=-inf, exchange=context.exchange)
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
    return form, with_forward(layer, lambda _, x, tile, context: form.reduced(x, tile, context))


def volume_mean(name: str) -> Reduction:
    """Return the form of a mean over all three spatial dimensions, which it keeps."""
    return Reduction(name, (1, 1, 1), is_maximum=False)
