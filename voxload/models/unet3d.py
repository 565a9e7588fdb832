"""UNet3D: a class for every voxel of a volume, in the variants of MLPerf training and of LBANN."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from voxload.errors import UsageError

Norm = Callable[[int], nn.Module]
"""Makes the normalisation of a number of channels."""


class EncoderBlock(nn.Module):
    """Two convolutions over 3x3x3 voxels, each normalised and rectified; before them what halves the extents, if any.

    Parameters
    ----------
    before
        Channels of the input.
    widths
        Channels that the two convolutions make.
    norm
        Makes the normalisations.
    pools
        Take the maximum of 2x2x2 voxels first.
    stride
        Stride of the first convolution; 2 halves even extents.
    """

    def __init__(self, before: int, widths: tuple[int, int], norm: Norm, *, pools: bool, stride: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool3d(2) if pools else nn.Identity()
        self.first = _convolution(before, widths[0], norm, stride=stride)
        self.second = _convolution(widths[0], widths[1], norm)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, widths[1], d, h, w) for (B, before, D, H, W)."""
        features: Tensor = self.second(self.first(self.pool(x)))
        return features


class DecoderBlock(nn.Module):
    """An upsampling, then two convolutions over 3x3x3 voxels of its result and what the encoder had at that level.

    Parameters
    ----------
    below
        Channels of the input.
    up
        Channels of the input after its extents were doubled.
    width
        Channels of the encoder's features, and of the result.
    norm
        Makes the normalisations.
    bias
        Whether the upsampling has a bias.
    """

    def __init__(self, below: int, up: int, width: int, norm: Norm, *, bias: bool) -> None:
        super().__init__()
        self.up = nn.ConvTranspose3d(below, up, 2, stride=2, bias=bias)
        self.first = _convolution(up + width, width, norm)
        self.second = _convolution(width, width, norm)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """Return (B, width, 2d, 2h, 2w).

        Parameters
        ----------
        x
            (B, below, d, h, w), from the level below.
        skip
            (B, width, 2d, 2h, 2w), from the encoder.
        """
        # Both sources put the upsampled channels first; weights trained there fit only in this order.
        joined = torch.cat((self.up(x), skip), 1)
        features: Tensor = self.second(self.first(joined))
        return features


def _convolution(before: int, after: int, norm: Norm, *, stride: int = 1) -> nn.Sequential:
    """Return one convolution with its normalisation, which takes away any bias, and its rectifier."""
    layers: list[tuple[str, nn.Module]] = [
        ("conv", nn.Conv3d(before, after, 3, stride, padding=1, bias=False)),
        ("norm", norm(after)),
        ("relu", nn.ReLU()),
    ]
    return nn.Sequential(OrderedDict(layers))


UNet3DVariant = Literal["kits19", "lbann"]
"""Names of the variants, as `UNet3D` takes them."""


class UNet3D(nn.Module):
    """The 3-D U-Net of Cicek et al. (2016) in one of two variants that keep the extents of the volume.

    An encoder halves the extents from level to level, a bottom block works on the smallest volume, and a decoder
    doubles the extents again by transposed convolutions over 2x2x2 voxels with stride 2, and joins what the encoder
    had at each level. Blocks have two 3x3x3 convolutions without bias, each normalised and rectified. A 1x1x1
    convolution makes the classes.

    ``"kits19"``, the one of MLPerf training for KiTS19 (mlcommons/training, image_segmentation/pytorch): 32, 64, 128,
    256 and 320 channels and 320 at the bottom; the first convolution of a level has stride 2; normalisation over
    each sample and channel, with scale and shift; an upsampling makes the channels of its level; upsamplings and the
    last convolution have a bias.

    ``"lbann"``, the one of LBANN (LLNL/lbann, applications/segmentation/unet3d): blocks of 32 and 64, 64 and 128, 128
    and 256 channels, and 256 and 512 at the bottom; the maximum over 2x2x2 voxels between levels; normalisation over
    the batch; an upsampling keeps its channels; no biases. The softmax with which LBANN ends is left to the loss.

    Parameters
    ----------
    channels
        Channels of the input.
    classes
        Classes to tell apart, the background among them.
    variant
        ``"kits19"`` or ``"lbann"``, as above.
    widths
        Channels that the levels give, from the first down to the bottom; None for those of the variant. One level
        fewer than there are numbers halves the extents. For ``"lbann"`` they are even: the first convolution of a
        block makes half.

    Attributes
    ----------
    input_multiple
        2 to the number of levels. The extents of the input are multiples of it, in voxels; `forward` does not look.
        A cube of just this extent has one voxel at the bottom, which torch refuses to normalise: for ``"kits19"``
        always, for ``"lbann"`` in training when it is alone in its batch.

    Raises
    ------
    UsageError
        For an unknown variant, fewer than one channel or class, or widths that make no network.

    Examples
    --------
    >>> model = UNet3D(1, 3, variant="lbann")
    >>> sum(weight.numel() for weight in model.parameters()), model.input_multiple
    (19070560, 8)
    """

    def __init__(
        self,
        channels: int = 1,
        classes: int = 3,
        *,
        variant: UNet3DVariant = "kits19",
        widths: Sequence[int] | None = None,
    ) -> None:
        kind = _kind(variant)
        chosen = kind.widths if widths is None else tuple(widths)
        if channels < 1 or classes < 1:
            raise UsageError(
                "UNet3D", found=f"channels={channels}, classes={classes}", expected="at least one channel and class"
            )
        _require_widths(chosen, kind.share)
        super().__init__()
        self.input_multiple: int = 2 ** (len(chosen) - 1)
        self._kind = kind
        blocks = _encoder(kind, channels, chosen)
        self.encoder = nn.ModuleList(blocks[:-1])
        self.bottom = blocks[-1]
        self.decoder = nn.ModuleList(_decoder(kind, chosen))
        self.output = nn.Conv3d(chosen[0], classes, 1, bias=kind.bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew and reset the normalisations.

        ``"kits19"`` starts as torch starts its layers, as MLPerf's reference does. Weights of ``"lbann"`` follow He's
        normal distribution with variance 2 / fan-in, which is what LBANN gives a convolution by default.
        """
        for module in self.modules():
            if isinstance(module, nn.Conv3d | nn.ConvTranspose3d | nn.InstanceNorm3d | nn.BatchNorm3d):
                module.reset_parameters()
            if self._kind.draws_he and isinstance(module, nn.Conv3d | nn.ConvTranspose3d):
                # torch takes the outputs of a transposed convolution for its fan-in: here it has as many inputs.
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (B, classes, D, H, W).

        Parameters
        ----------
        x
            (B, channels, D, H, W), each of the extents a multiple of `input_multiple`.
        """
        skips: list[Tensor] = []
        for block in self.encoder:
            x = block(x)
            skips.append(x)
        x = self.bottom(x)
        for block in self.decoder:
            # Popped: without gradients, features of the encoder are freed as soon as they are joined.
            x = block(x, skips.pop())
        logits: Tensor = self.output(x)
        return logits


@dataclass(frozen=True, slots=True)
class _Kind:
    """What tells the variants apart."""

    widths: tuple[int, ...]
    """Channels that the levels give, from the first down to the bottom."""
    share: int
    """The first convolution of a block makes the channels of its level divided by this."""
    pools: bool
    """Whether the extents are halved by pooling; by a stride of the first convolution if not."""
    keeps: bool
    """Whether an upsampling keeps its channels; it makes those of its level if not."""
    norm: Norm
    """Makes the normalisations."""
    bias: bool
    """Whether upsamplings and the last convolution have a bias."""
    draws_he: bool
    """Whether weights follow He's normal distribution; torch's own if not."""


_KINDS: dict[str, _Kind] = {
    "kits19": _Kind(
        (32, 64, 128, 256, 320, 320),
        share=1,
        pools=False,
        keeps=False,
        norm=partial(nn.InstanceNorm3d, affine=True),
        bias=True,
        draws_he=False,
    ),
    "lbann": _Kind(
        (64, 128, 256, 512), share=2, pools=True, keeps=True, norm=nn.BatchNorm3d, bias=False, draws_he=True
    ),
}


def _kind(variant: str) -> _Kind:
    """Return what `variant` is; raises UsageError for an unknown one."""
    kind = _KINDS.get(variant)
    if kind is None:
        raise UsageError("variant of UNet3D", found=repr(variant), expected=" or ".join(map(repr, _KINDS)))
    return kind


def _require_widths(widths: tuple[int, ...], share: int) -> None:
    """Raise UsageError unless `widths` make a network whose blocks start with 1 / `share` of their channels."""
    if len(widths) < 2:
        raise UsageError(
            "widths of UNet3D", found=str(widths), expected="two or more: the first level, ..., the bottom"
        )
    if any(width < share or width % share for width in widths):
        expected = "at least one channel at each level" if share == 1 else f"positive multiples of {share}"
        raise UsageError("widths of UNet3D", found=str(widths), expected=expected)


def _encoder(kind: _Kind, channels: int, widths: tuple[int, ...]) -> list[EncoderBlock]:
    """Return the blocks on the way down, the bottom last; all but the first halve the extents."""
    return [
        EncoderBlock(
            widths[level - 1] if level else channels,
            (width // kind.share, width),
            kind.norm,
            pools=kind.pools and level > 0,
            stride=1 if kind.pools or not level else 2,
        )
        for level, width in enumerate(widths)
    ]


def _decoder(kind: _Kind, widths: tuple[int, ...]) -> list[DecoderBlock]:
    """Return the blocks on the way up, the deepest first."""
    return [
        DecoderBlock(below, below if kind.keeps else width, width, kind.norm, bias=kind.bias)
        for width, below in reversed(list(pairwise(widths)))
    ]
