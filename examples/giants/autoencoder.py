"""A stacked auto-encoder of three layers with untied weights, as grew to 15 billion parameters on images and clips.

Source: K. Ni et al., arXiv 1502.03409. Each place of a clip has weights of its own: that is how three layers come to so
many. `giant` is of that size; `scaled` is the same network for a workstation, `small` for tests.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class LocalLayer(nn.Module):
    """Maps each patch by weights of its own: ``(B, patches, inputs)`` to ``(B, patches, outputs)``.

    Its weights are whatever the memory held: `first_values` says what they begin with.
    """

    def __init__(self, patches: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(patches, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(patches, 1, outputs))

    @staticmethod
    def first_values(shape: Sequence[int], seed: int) -> Tensor:
        """Return what weights or biases of a shape begin with, whole, in float64."""
        if shape[1] == 1:
            return torch.zeros(*shape, dtype=torch.float64)
        drawn = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        return drawn.mul_((2 / (shape[1] + shape[2])) ** 0.5)

    def forward(self, patches: Tensor) -> Tensor:
        """Return the patches, mapped."""
        mapped = torch.baddbmm(self.bias, patches.transpose(0, 1), self.weight).transpose(0, 1)
        # A copy, though it be contiguous as of one clip: FSDP2 hooks onto what a layer returns, and would lose a view.
        return mapped.clone(memory_format=torch.contiguous_format)


class Stage(nn.Module):
    """One layer up and one down: what is learnt of what the layers before have made."""

    def __init__(self, patches: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.up, self.down = LocalLayer(patches, inputs, outputs), LocalLayer(patches, outputs, inputs)

    def forward(self, below: Tensor) -> tuple[Tensor, Tensor]:
        """Return the code, and what it says the patches were."""
        code = torch.relu(self.up(below))
        return code, self.down(code)


class StackedAutoencoder(nn.Module):
    """Reconstructs clips ``(B, C, T, H, W)`` through three codes, one upon the other.

    Parameters
    ----------
    shape
        Extents (C, T, H, W) of a clip.
    patch
        Extents (t, h, w) of a patch, of which the clip is a whole number along each axis.
    width
        Numbers of a code, for each patch.
    """

    def __init__(self, shape: Sequence[int], patch: Sequence[int], width: int) -> None:
        super().__init__()
        channels, *extents = shape
        self.patch, self.counts = tuple(patch), tuple(e // p for e, p in zip(extents, patch, strict=True))
        patches = self.counts[0] * self.counts[1] * self.counts[2]
        inputs = channels * patch[0] * patch[1] * patch[2]
        self.stages = nn.ModuleList(Stage(patches, below, width) for below in (inputs, width, width))

    def forward(self, clips: Tensor) -> Tensor:
        """Return the mean squared error of each stage's reconstruction, added up: what is learnt from."""
        below, loss = self.cut(clips), clips.new_zeros(())
        for stage in self.stages:
            code, again = stage(below)
            loss = loss + nn.functional.mse_loss(again, below.detach())
            below = code
        return loss

    def cut(self, clips: Tensor) -> Tensor:
        """Return the patches of clips, ``(B, patches, inputs)``."""
        (t, h, w), (a, b, c) = self.patch, self.counts
        parted = clips.reshape(clips.shape[0], clips.shape[1], a, t, b, h, c, w)
        return parted.permute(0, 2, 4, 6, 1, 3, 5, 7).reshape(clips.shape[0], a * b * c, -1)


GIANT, SCALED, SMALL = (3, 8, 128, 128), (3, 8, 64, 64), (3, 4, 16, 16)
"""Extents (C, T, H, W) of clips."""


def giant() -> StackedAutoencoder:
    """Return the network of 15 billion parameters."""
    return StackedAutoencoder(GIANT, (4, 16, 16), 4736)


def scaled() -> StackedAutoencoder:
    """Return that of 461 million weights."""
    return StackedAutoencoder(SCALED, (4, 16, 16), 1280)


def small() -> StackedAutoencoder:
    """Return one of half a million."""
    return StackedAutoencoder(SMALL, (2, 8, 8), 64)
