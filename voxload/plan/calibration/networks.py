"""Networks that are measured: layers of every kind, at widths and extents that cover what people train."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional

_LARGEST_VOLUME = 2**24
"""Elements of what a convolution takes or gives, at most: 64 MiB in float32."""


class Mixed(nn.Module):
    """Convolutions of several kernels, normalised in three ways, down a level and up again, with two kinds of skips.

    Parameters
    ----------
    channels
        Of the input.
    width
        Channels of the first level; the second has twice as many.
    averages
        Whether the level below is an average, behind a convolution with a stride, or a maximum.
    """

    def __init__(self, channels: int, width: int, *, averages: bool) -> None:
        super().__init__()
        self.first = nn.Conv3d(channels, width, 3, padding=1)
        self.norm = nn.InstanceNorm3d(width, affine=True)
        self.second = nn.Conv3d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm3d(width)
        self.down = nn.Conv3d(width, 2 * width, 3, stride=2, padding=1) if averages else nn.Conv3d(width, 2 * width, 1)
        self.pool = nn.AvgPool3d(3, stride=1, padding=1) if averages else nn.MaxPool3d(2)
        self.below = nn.Conv3d(2 * width, 2 * width, 3, padding=1)
        self.below_norm = nn.GroupNorm(2, 2 * width)
        self.up = nn.ConvTranspose3d(2 * width, width, 2, stride=2)
        self.joined = nn.Conv3d(2 * width, width, 3, padding=1)
        self.dropped = nn.Dropout(0.1)
        self.last = nn.Conv3d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 3, D, H, W) for (B, C, D, H, W) of even extents."""
        skip = functional.relu(self.norm(self.first(x)))
        skip = skip + functional.leaky_relu(self.second_norm(self.second(skip)), 0.1)
        low = self.pool(self.down(skip))
        low = functional.relu(self.below_norm(self.below(low)))
        high = torch.cat([self.up(low), skip], 1)
        voxels: Tensor = self.last(self.dropped(functional.relu(self.joined(high))))
        return voxels


class Pointwise(nn.Module):
    """All that is no convolution, over large volumes: these take what memory gives.

    Parameters
    ----------
    channels
        Of the input; even.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norms = nn.Sequential(
            nn.InstanceNorm3d(channels, affine=True), nn.BatchNorm3d(channels), nn.GroupNorm(2, channels)
        )
        self.pools = nn.ModuleList([nn.MaxPool3d(2), nn.AvgPool3d(2), nn.AvgPool3d(3, 2, 1)])
        self.up, self.dropped = nn.Upsample(scale_factor=2, mode="nearest"), nn.Dropout(0.1)
        self.smooth = nn.Upsample(scale_factor=2, mode="trilinear")
        self.scale = nn.Parameter(torch.full((1,), 0.5))  # so that what comes first has a backward pass, too

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 2 C, D, H, W) for (B, C, D, H, W) of even extents."""
        x = functional.leaky_relu(self.norms(functional.relu(x + x * self.scale)), 0.1)
        low: Tensor = self.pools[0](x) + self.pools[1](x) + self.pools[2](x)
        return torch.cat([self.dropped(x), functional.elu(self.up(low) + self.smooth(low))], 1)


class Stack(nn.Module):
    """Convolutions behind one another, each normalised or not: many messages and sums, or few, for what is computed.

    Parameters
    ----------
    channels
        Of the input, and of all layers.
    kernels
        Of the convolutions, in order.
    is_normalised
        Whether each is normalised over its batch.
    """

    def __init__(self, channels: int, kernels: Sequence[int], *, is_normalised: bool) -> None:
        super().__init__()
        layers = list[nn.Module]()
        for kernel in kernels:
            layers.append(nn.Conv3d(channels, channels, kernel, padding=kernel // 2))
            layers += [nn.BatchNorm3d(channels)] if is_normalised else []
            layers.append(nn.ReLU())
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, C, D, H, W) for the same."""
        voxels: Tensor = self.layers(x)
        return voxels


class Dense(nn.Module):
    """Layers with many weights: an optimiser has more to do than they have.

    Parameters
    ----------
    features
        Of the flattened input.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(features, 128), nn.LeakyReLU(0.1), nn.Linear(128, 16))

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 16) for (B, C, D, H, W)."""
        numbers: Tensor = self.head(x)
        return numbers


class Regressor(nn.Module):
    """Convolutions and pools down to few voxels, and dense layers behind them.

    Parameters
    ----------
    channels
        Of the input.
    width
        Channels behind the first convolution, doubled twice.
    extent
        Of the input's cube.
    """

    def __init__(self, channels: int, width: int, extent: int) -> None:
        super().__init__()
        widths = [channels, width, 2 * width, 4 * width]
        self.features = nn.ModuleList(nn.Conv3d(before, after, 3, padding=1) for before, after in pairwise(widths))
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Linear(4 * width * (extent // 8) ** 3, 128),
            nn.LeakyReLU(0.1),
            nn.Dropout(0.2),
            nn.Linear(128, 16),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 16) for (B, C, D, H, W)."""
        for layer in self.features:
            x = functional.max_pool3d(functional.leaky_relu(layer(x), 0.1), 2)
        numbers: Tensor = self.head(x)
        return numbers


_EXTENTS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
_FEW = (4, 8, 8, 10, 12, 16, 16, 20, 24, 32, 48, 64)
"""Channels of layers with many voxels."""
_CHANNELS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 512)
"""Voxels along an axis, and channels, that people choose."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """One convolution."""

    channels: int
    filters: int
    kernel: int
    stride: int
    extents: tuple[int, int, int]
    """Of its input."""
    batch: int
    is_transposed: bool
    is_first: bool
    """Whether its input needs no gradient."""
    padded: tuple[bool, bool, bool]
    """Whether it pads depth, height and width: along axes that are cut, halos are there instead."""

    def make(self) -> nn.Module:
        """Return it as a network, its weights on torch's default device."""
        kind = nn.ConvTranspose3d if self.is_transposed else nn.Conv3d
        wide = 0 if self.is_transposed else self.kernel // 2
        depth, height, width = (wide if each else 0 for each in self.padded)
        return nn.Sequential(kind(self.channels, self.filters, self.kernel, self.stride, (depth, height, width)))

    @property
    def work(self) -> float:
        """Operations of the forward pass."""
        outputs = prod(self.extents) * (1 if self.is_transposed else 1 / self.stride**3)
        return 2 * self.batch * outputs * self.channels * self.filters * self.kernel**3


def convolutions(largest: float, seed: int) -> Iterator[Convolution]:
    """Yield convolutions without end, drawn as networks have them, of at most so many operations (`Convolution.work`).

    Channels are mostly those that people choose, for which kernels are made; a fifth are any.
    """
    draw = random.Random(seed)  # noqa: S311 - an order needs no secrecy
    while True:
        is_transposed = draw.random() < 0.1
        kernel = 2 if is_transposed else draw.choices((3, 1, 2, 5), (12, 3, 1, 1))[0]
        channels = draw.choice(_CHANNELS) if draw.random() < 0.8 else round(2 ** draw.uniform(2, 9.1))
        filters = min(512, max(2, round(channels * 2 ** draw.choice((-1, 0, 0, 1, 1)))))
        if draw.random() < 0.2:
            filters = draw.choice(_CHANNELS) if draw.random() < 0.8 else round(2 ** draw.uniform(1, 9))
        extent, stride = draw.choice(_EXTENTS), 2 if is_transposed or draw.random() < 0.15 else 1
        kind = draw.random()
        if kind < 0.2:  # the first layers of a network: few channels of many voxels
            channels, filters = draw.choice((1, 2, 3, 4, 8, 16)), draw.choice((8, 12, 16, 24, 32, 64))
            extent = draw.choice(_EXTENTS[-4:])
            kernel, stride = (kernel, stride) if draw.random() < 0.7 else (draw.choice((3, 5, 7)), 2)
        elif kind < 0.28 and not is_transposed:  # the last one
            channels, filters = draw.choice((8, 12, 16, 24, 32, 64)), draw.choice((1, 2, 3, 4, 8))
            kernel, extent = draw.choice((1, 1, 3)), draw.choice(_EXTENTS[-4:])
        is_heavy = not is_transposed and 0.28 <= kind < 0.6
        if is_heavy:  # those between: most of what a network takes
            channels, filters = draw.choice(_FEW), draw.choice(_FEW)
            kernel, stride, extent = 3, 1 if draw.random() < 0.85 else 2, draw.choice(_EXTENTS[-4:])
        padded = tuple(draw.random() < 0.5 for _ in range(3))
        cuts = (0, 0, 0, 0, 0, 1) if is_heavy else (0, 0, 0, 1, 2)
        sides = [max(2, extent // 2 ** draw.choice(cuts)) for _ in range(3)]
        # Along an axis that is cut, a block has its halos where padding would be: outputs are as many.
        beyond = 0 if is_transposed else 2 * (kernel // 2)
        extents = [side if each else side + beyond for side, each in zip(sides, padded, strict=True)]
        found = Convolution(
            channels,
            filters,
            kernel,
            stride,
            (extents[0], extents[1], extents[2]),
            draw.choice((1, 1, 1, 2, 2, 4)),
            is_transposed,
            channels < 5 and draw.random() < 0.7,
            (padded[0], padded[1], padded[2]),
        )
        volume = found.batch * prod(found.extents) * max(channels, filters)
        if largest / 3000 < found.work <= largest and volume <= _LARGEST_VOLUME:
            yield found


@dataclass(frozen=True, slots=True)
class Case:
    """One network at one size."""

    kind: str
    width: int
    extents: tuple[int, int, int]
    batch: int
    channels: int

    def make(self) -> nn.Module:
        """Return the network, its weights on torch's default device."""
        if self.kind == "pointwise":
            return Pointwise(self.channels)
        if self.kind == "dense":
            return Dense(self.channels * prod(self.extents))
        if self.kind == "regressor":
            return Regressor(self.channels, self.width, self.extents[0])
        return Mixed(self.channels, self.width, averages=self.kind == "averages")

    @property
    def work(self) -> int:
        """About how much there is to compute, to choose cases by."""
        voxels = self.batch * prod(self.extents)
        return voxels * (self.width * (self.channels + 6 * self.width) + 20 * self.width)


def volumes(largest: int) -> list[Case]:
    """Return cases without convolutions: over volumes of at most so many elements, and with many weights."""
    counts = [*(2 * 4**power for power in range(8)), 16, 24, 48]  # 24 MiB lie below what comes from the system
    found = [Case("pointwise", 0, (64, 64, 64), 1, count) for count in sorted(counts)]
    dense = [Case("dense", 0, (16, 16, 16), 2, 4**power) for power in (2, 1, 0)]
    return [*(each for each in reversed(found) if each.channels * prod(each.extents) <= largest), *dense]


def cases(largest: int) -> list[Case]:
    """Return cases of at most so much work (`Case.work`), small ones first."""
    found = [
        Case(kind, width, extents, batch, channels)
        for width in (2, 4, 8, 16, 32, 64, 128)
        for extents in ((8, 8, 8), (16, 16, 16), (16, 32, 32), (32, 32, 32), (32, 64, 64), (64, 64, 64), (64, 128, 128))
        for kind, batch, channels in (("maxima", 1, 1), ("averages", 2, 4), ("regressor", 1, 4))
        if kind != "regressor" or len(set(extents)) == 1
    ]
    return sorted((each for each in found if each.work <= largest), key=lambda each: each.work)
