"""Convolutions in split form: Conv3d, ConvTranspose3d."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from voxload.engine.arithmetic.axis_plan import FIRST_AXIS, PaddingMode
from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.layer_plan import LayerPlan, Tile
from voxload.engine.arithmetic.windows import Spread, Window
from voxload.engine.layers.form import PassContext, with_forward
from voxload.engine.layers.stencil import Stencil, at_least, cropped
from voxload.engine.run.overlap import Layout, joined, layout_of
from voxload.engine.run.tensors import autocast_type


@dataclass(frozen=True, slots=True)
class Unpadded:
    """Calls a layer that has left its padding to the engine."""

    spans: tuple[int, ...]
    """Inputs from the first to the last that one output reads, per axis."""

    def __call__(self, layer: nn.Module, x: Tensor, tile: Tile) -> Tensor:
        """Return this rank's outputs from the inputs that they read."""
        return cropped(layer(at_least(x, self.spans, tile)), tile)


@dataclass(frozen=True, slots=True)
class Convolution:
    """The split form of Conv3d: a stencil, or its own block first and the halos after it, as the context says."""

    stencil: Stencil
    """The form that pads."""
    windows: tuple[Window, ...]
    """Per axis (d, h, w)."""
    padding: tuple[int, ...]
    """Zeros that the layer itself puts on either side, per axis."""

    @property
    def kind(self) -> str:
        """Name of the layer's class."""
        return self.stencil.kind

    def plan(self, blocks: Blocks, wanted: Blocks | None, *, min_width: int) -> LayerPlan:
        """Return the plan for an input cut into `blocks`; see Form."""
        return self.stencil.plan(blocks, wanted, min_width=min_width)

    def run(self, layer: Any, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
        """Return this rank's block of the output, (B, C, d, h, w); see Form."""
        # A compiler orders messages and computing by itself.
        plain = not context.chooser.may_join or torch.compiler.is_compiling() or context.exchange.carries_graph
        layout = None if plain else _layout(tile, self.windows, self.padding, layer.groups)
        if layout is None:
            return self.stencil.run(layer, x, tile, context)
        y: Tensor = layer(x, layout, context)
        return y


_layout = lru_cache(maxsize=4096)(layout_of)


def _forward(layer: nn.Conv3d, x: Tensor, layout: Layout | None = None, context: PassContext | None = None) -> Tensor:
    """Do what ``nn.Conv3d.forward`` does on gathered inputs, or on a block whose halos are to be fetched."""
    if layout is None or context is None:
        return nn.Conv3d.forward(layer, x)
    weight, bias = layer.weight, layer.bias
    if (dtype := autocast_type(x.device.type)) is not None:
        x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    return joined(x, weight, bias, layout=layout, chooser=context.chooser, exchange=context.exchange)


def split_conv3d(layer: nn.Conv3d, split: tuple[bool, ...]) -> tuple[Convolution, nn.Module]:
    """Return the form of `layer`, and the layer without padding where the engine provides it.

    Any kernel, stride, dilation and number of groups; padding in numbers, ``"same"`` or ``"valid"``, in all of torch's
    modes. The second layer has the same parameter objects as the first.

    Parameters
    ----------
    layer
        The convolution.
    split
        Whether the volume is split, per axis (d, h, w).
    """
    outside = PaddingMode(layer.padding_mode)
    pads = [_padding(layer, axis) for axis in range(len(split))]
    # A layer that pads an unsplit axis itself spares a padded copy of the volume; it can only pad evenly.
    gathered = tuple(
        cut or (outside is not PaddingMode.CONSTANT and max(low, high) > 0) or low != high
        for cut, (low, high) in zip(split, pads, strict=True)
    )
    windows = tuple(
        Window(kernel, stride, dilation, low, high)
        for kernel, stride, dilation, (low, high) in zip(
            layer.kernel_size, layer.stride, layer.dilation, pads, strict=True
        )
    )
    bare: Any = with_forward(layer, _forward)
    bare.padding = tuple(0 if fetched else low for fetched, (low, _) in zip(gathered, pads, strict=True))
    bare.padding_mode = "zeros"
    finish = Unpadded(tuple(window.span for window in windows))
    stencil = Stencil("Conv3d", windows, finish, gathered, outside, casts=True)
    return Convolution(stencil, windows, bare.padding), bare


def _padding(layer: nn.Conv3d, axis: int) -> tuple[int, int]:
    """Return the voxels padded before and after the volume along `axis`."""
    if layer.padding == "valid":
        return 0, 0
    if layer.padding == "same":
        total = layer.dilation[axis] * (layer.kernel_size[axis] - 1)
        return total // 2, total - total // 2
    return int(layer.padding[axis]), int(layer.padding[axis])


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
