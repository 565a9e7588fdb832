"""Conv3d in split form."""

from __future__ import annotations

import copy

from torch import nn

from voxload.engine.stencil import Stencil
from voxload.engine.window import Window
from voxload.errors import UsageError
from voxload.geometry import Boundary

_BOUNDARIES = {"zeros": Boundary.ZERO, "circular": Boundary.PERIODIC}
"""Padding modes of torch that the engine has."""


def split_conv3d(layer: nn.Conv3d, split: tuple[bool, ...]) -> tuple[Stencil, nn.Module]:
    """Return the stencil of `layer`, and the layer without padding where the engine provides it.

    Any kernel, stride, dilation and number of groups; padding in numbers, ``"same"`` or ``"valid"``, with zeros or
    circular. The second layer has the same parameter objects as the first.

    Parameters
    ----------
    layer
        The convolution.
    split
        Whether the volume is split, per axis (d, h, w).

    Raises
    ------
    UsageError
        For another padding mode.
    """
    if layer.padding_mode not in _BOUNDARIES:
        raise UsageError(
            "Conv3d",
            found=f"padding_mode={layer.padding_mode!r}",
            expected=" or ".join(repr(mode) for mode in _BOUNDARIES),
        )
    boundary = _BOUNDARIES[layer.padding_mode]
    pads = [_padding(layer, axis) for axis in range(len(split))]
    # A layer that pads an unsplit axis itself spares a padded copy of the volume; it can only pad evenly.
    gathered = tuple(
        cut or boundary is Boundary.PERIODIC or low != high for cut, (low, high) in zip(split, pads, strict=True)
    )
    windows = tuple(
        Window(kernel, stride, dilation, low, high)
        for kernel, stride, dilation, (low, high) in zip(
            layer.kernel_size, layer.stride, layer.dilation, pads, strict=True
        )
    )
    bare = copy.copy(layer)
    bare.padding = tuple(0 if fetched else low for fetched, (low, _) in zip(gathered, pads, strict=True))
    bare.padding_mode = "zeros"
    return Stencil("Conv3d", windows, boundary, 0.0, gathered), bare


def _padding(layer: nn.Conv3d, axis: int) -> tuple[int, int]:
    """Return the voxels padded before and after the volume along `axis`."""
    if layer.padding == "valid":
        return 0, 0
    if layer.padding == "same":
        total = layer.dilation[axis] * (layer.kernel_size[axis] - 1)
        return total // 2, total - total // 2
    return int(layer.padding[axis]), int(layer.padding[axis])
