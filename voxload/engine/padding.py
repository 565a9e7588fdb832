"""Padding layers in split form: the engine's gather, and nothing after it."""

from __future__ import annotations

from torch import Tensor, nn

from voxload.engine.form import Tile
from voxload.engine.outside import Outside
from voxload.engine.stencil import HANDED, Stencil, cropped
from voxload.engine.twin import with_forward
from voxload.engine.window import Window

PADDINGS: dict[type[nn.Module], Outside] = {
    nn.CircularPad3d: Outside.CIRCULAR,
    nn.ConstantPad3d: Outside.CONSTANT,
    nn.ReflectionPad3d: Outside.REFLECT,
    nn.ReplicationPad3d: Outside.REPLICATE,
    nn.ZeroPad3d: Outside.CONSTANT,
}
"""torch's layers that pad a volume, and what they put there."""


def split_padding(layer: nn.Module, split: tuple[bool, ...]) -> tuple[Stencil, nn.Module]:
    """Return the stencil of a padding layer: each output reads one input, and negative padding leaves some out."""
    # torch lists (low, high) from the last axis to the first.
    pads = tuple(int(number) for number in layer.padding)  # type: ignore[union-attr] # a tuple of six
    windows = tuple(Window(1, low=low, high=high) for low, high in zip(pads[4::-2], pads[5::-2], strict=True))
    fill = float(getattr(layer, "value", 0.0))
    gathered = (True,) * len(split)
    stencil = Stencil(type(layer).__name__, windows, HANDED, gathered, PADDINGS[type(layer)], fill)
    return stencil, with_forward(layer, _untouched)


def _untouched(_layer: nn.Module, x: Tensor, tile: Tile) -> Tensor:
    """Return what was gathered."""
    return cropped(x, tile)
