"""Dropout that falls on the same voxels however the volume is cut.

A random number is a hash of the pass's seed, the place of the layer in the network and the global position of the
element, so that every rank makes its part of one mask without knowing the rest of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.layer_plan import LayerPlan, Tile
from voxload.engine.layers.form import PassContext, with_forward
from voxload.engine.run.tensors import sent

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0x7FEB352D, 0x31848BAB)
"""Odd constants below 2^31, from Wellons' search for 32-bit mixers of low bias: products stay within 63 bits."""
_RESOLUTION = 2**32
_FEW = 2**12
"""Hashes that the host makes in the time in which a device is asked for the kernels of one step."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The split form of nn.Dropout and nn.Dropout3d; blocks stay where they are."""

    kind: str
    """Name of the layer's class."""
    site: int
    """Place of the layer in the network: two layers drop different voxels."""

    def plan(self, blocks: Blocks, wanted: Blocks | None, *, min_width: int) -> LayerPlan:  # noqa: ARG002 - see Form
        """Return a plan that leaves every block where it is."""
        return LayerPlan(blocks, blocks)

    def run(self, layer: Any, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
        """Return this rank's block with voxels, or channels, set to zero and the others scaled up; see Form."""
        y: Tensor = layer(x, (0, 0, *tile.first), context.seed + self.site)
        return y


def split_dropout(layer: nn.Module, site: int) -> tuple[Dropped, nn.Module]:
    """Return the form of Dropout (voxels) or Dropout3d (channels) for the layer called at `site` of the network."""
    return Dropped(type(layer).__name__, site), with_forward(layer, dropped)


def dropped(layer: Any, x: Tensor, first: Sequence[int], seed: Tensor) -> Tensor:
    """Return what a dropout layer makes of `x`, whose first element has the global position `first`.

    Parameters
    ----------
    layer
        nn.Dropout or nn.Dropout3d.
    x
        Any shape; for Dropout3d the first two dimensions are samples and channels.
    first
        One position per dimension.
    seed
        int64 scalar.
    """
    if not layer.training or layer.p == 0.0:
        return x
    shape = x.shape[:2] if isinstance(layer, nn.Dropout3d) else x.shape
    keep = hashes(shape, first, seed, x.device) >= int(layer.p * _RESOLUTION)
    keep = keep[(..., *(None,) * (x.ndim - keep.ndim))]
    # Where all is dropped nothing is left to scale.
    kept = x / (1 - layer.p) if layer.p < 1 else x
    return torch.where(keep, kept, torch.zeros((), dtype=x.dtype, device=x.device))


def hashes(shape: Sequence[int], first: Sequence[int], seed: Tensor, device: torch.device) -> Tensor:
    """Return one number from 0 to 2^32 - 1 per element, from its global position: an int64 tensor of `shape`."""
    places = [
        torch.arange(start, start + extent, dtype=torch.int64) for extent, start in zip(shape, first, strict=False)
    ]
    return hashed(places, seed, device)


def hashed(places: Sequence[Tensor], seed: Tensor, device: torch.device) -> Tensor:
    """Return the same of elements whose global positions are given, one int64 tensor of the host per dimension.

    The host hashes what is few, while a device is busy with what it was asked before: there each of the many small
    steps would be a kernel.
    """
    words = _mixed((seed >> 32) & _WORD) ^ (seed & _WORD)
    for along in places:
        # Hashed axis by axis: only the last step has as many elements as the volume.
        if words.numel() * along.numel() > _FEW:
            words = sent(words, device)
        words = _mixed(_mixed(words)[..., None] ^ sent(along & _WORD, words.device))
    return _mixed(sent(words, device))


def _mixed(words: Tensor) -> Tensor:
    """Return a permutation of 32-bit numbers in which every bit depends on every bit."""
    words = words ^ (words >> 16)
    words = (words * _MULTIPLIERS[0]) & _WORD
    words = words ^ (words >> 15)
    words = (words * _MULTIPLIERS[1]) & _WORD
    return words ^ (words >> 16)
