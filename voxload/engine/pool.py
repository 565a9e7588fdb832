"""MaxPool3d and AvgPool3d in split form."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor, nn

from voxload.engine.conv import Unpadded
from voxload.engine.form import Tile
from voxload.engine.stencil import Stencil, at_least, cropped
from voxload.engine.tensors import sent
from voxload.engine.window import Window, counted
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
