"""MaxPool3d and AvgPool3d in split form."""

from __future__ import annotations

import copy
from math import inf

from torch import nn

from voxload.engine.stencil import Stencil
from voxload.engine.window import Window
from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES, Boundary

_AXES = range(len(SPATIAL_AXES))


def split_max_pool3d(layer: nn.MaxPool3d, split: tuple[bool, ...]) -> tuple[Stencil, nn.Module]:
    """Return the stencil of `layer`, and the layer without padding along the `split` axes.

    Any kernel, stride, padding, dilation and ``ceil_mode``. Windows hold the same values in the same order as in
    one process, so ties are broken alike. Raises UsageError for ``return_indices``.
    """
    if layer.return_indices:
        raise UsageError("MaxPool3d", found="return_indices=True", expected="return_indices=False")
    windows = tuple(
        Window(
            _of(layer.kernel_size, axis),
            _of(layer.stride, axis),
            _of(layer.dilation, axis),
            _of(layer.padding, axis),
            _of(layer.padding, axis),
            ceil=layer.ceil_mode,
        )
        for axis in _AXES
    )
    bare = copy.copy(layer)
    bare.padding = _own_padding(windows, split)
    return Stencil("MaxPool3d", windows, Boundary.ZERO, -inf, split), bare


def split_avg_pool3d(layer: nn.AvgPool3d, split: tuple[bool, ...]) -> tuple[Stencil, nn.Module]:
    """Return the stencil of `layer`, and the layer without padding along the gathered axes.

    Any kernel, stride, padding, ``ceil_mode``, ``count_include_pad`` and ``divisor_override``. Where windows
    at the border count fewer voxels, the split layer sums, and the sums are divided by counts that follow from
    the windows' global positions.
    """
    windows = tuple(
        Window(
            _of(layer.kernel_size, axis),
            _of(layer.stride, axis),
            low=_of(layer.padding, axis),
            high=_of(layer.padding, axis),
            ceil=layer.ceil_mode,
        )
        for axis in _AXES
    )
    padded = any(window.low for window in windows)
    varies = layer.ceil_mode or (padded and not layer.count_include_pad)
    bare = copy.copy(layer)
    if varies and layer.divisor_override is None:
        bare.padding, bare.divisor_override = 0, 1
        gathered = (True,) * len(split)
        return Stencil("AvgPool3d", windows, Boundary.ZERO, 0.0, gathered, bool(layer.count_include_pad)), bare
    bare.padding = _own_padding(windows, split)
    return Stencil("AvgPool3d", windows, Boundary.ZERO, 0.0, split), bare


def _own_padding(windows: tuple[Window, ...], split: tuple[bool, ...]) -> tuple[int, int, int]:
    """Return the padding that a layer keeps: along the axes that are not split."""
    depth, height, width = (0 if cut else window.low for window, cut in zip(windows, split, strict=True))
    return depth, height, width


def _of(value: int | tuple[int, ...], axis: int) -> int:
    """Return the setting of one axis: torch takes one number for all, or one each."""
    return value if isinstance(value, int) else value[axis]
