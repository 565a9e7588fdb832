"""Networks of our own: one for each thing that a trace cannot keep, and those of voxload.models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.networking.network import Network, uneven
from tests.support.splitting.functional import FunctionalUNet
from voxload.models import UNet3D


class DeepSupervision(nn.Module):
    """A result at each level, in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv3d(1, 4, 3, padding=1), nn.Conv3d(4, 8, 3, 2, 1)
        self.heads = nn.ModuleList([nn.Conv3d(4, 2, 1), nn.Conv3d(8, 2, 1)])

    def forward(self, x: Tensor) -> dict[str, Any]:
        """Return both, and the mean of the lower one."""
        high = functional.leaky_relu(self.first(x))
        low = functional.leaky_relu(self.second(high))
        return {"levels": [head(each) for head, each in zip(self.heads, (high, low), strict=True)], "mean": low.mean()}


class Patches(nn.Module):
    """Patch embedding, attention within windows that are shifted, and pixel shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv3d(1, 16, 2, 2)
        self.norm, self.into, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Return a volume of one channel."""
        y = torch.roll(self.embed(x), (-1, -1, -1), (2, 3, 4)).movedim(1, -1)
        b, d, h, w, c = y.shape
        tokens = y.reshape(b, d // 2, 2, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(-1, 8, c)
        query, key, value = self.into(self.norm(tokens)).chunk(3, -1)
        tokens = tokens + torch.matmul((query @ key.transpose(1, 2) / c**0.5).softmax(-1), value)
        y = tokens.view(b, d // 2, h // 2, w // 2, 2, 2, 2, c).permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(b, d, h, w, c)
        y = torch.roll(self.out(y), (1, 1, 1), (1, 2, 3))
        return y.view(b, d, h, w, 2, 2, 2, 1).permute(0, 7, 1, 4, 2, 5, 3, 6).reshape(b, 1, 2 * d, 2 * h, 2 * w)


class Excited(nn.Module):
    """Squeeze and excitation, by extents that are asked for, and coordinates as channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.squeeze, self.norm = nn.Conv3d(4, 8, 3, padding=1), nn.Linear(8, 8), nn.BatchNorm3d(8)

    def forward(self, x: Tensor) -> Tensor:
        """Return eight channels."""
        axes = [torch.linspace(-1, 1, extent, dtype=x.dtype, device=x.device) for extent in x.shape[2:]]
        grids = torch.stack(torch.meshgrid(*axes, indexing="ij")).expand(x.shape[0], -1, -1, -1, -1)
        y = self.norm(self.conv(torch.cat([x, grids], 1)))
        share: Tensor = self.squeeze(functional.adaptive_avg_pool3d(y, 1).flatten(1)).sigmoid()
        return y * share[:, :, None, None, None] if isinstance(y, Tensor) else y


class Causal(nn.Module):
    """Convolutions that see the past alone, along d, and weights of unit length."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(nn.Conv3d(1, 4, (3, 3, 3), padding=(0, 1, 1)))
        self.second = nn.Conv3d(4, 1, (3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return a volume of one channel."""
        y = self.first(functional.pad(x, (0, 0, 0, 0, 2, 0), mode="replicate"))
        result: Tensor = self.second(functional.pad(functional.silu(y), (0, 0, 0, 0, 2, 0)))
        return result


class Tokens(nn.Module):
    """Attention of all patches to each other, with a table of positions and a token for the class."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.positions = nn.Conv3d(1, 8, 4, 4), nn.Parameter(torch.randn(1, 8, 4, 4, 4))
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.ConvTranspose3d(8, 1, 4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return a volume, and what the token has become."""
        y = self.embed(x)
        y = y + functional.interpolate(self.positions, size=y.shape[2:], mode="trilinear", align_corners=False)
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), y.flatten(2).transpose(1, 2)], 1)
        tokens = self.layer(tokens)
        return self.head(tokens[:, 1:].transpose(1, 2).reshape(y.shape)), tokens[:, 0]


class Modes(nn.Module):
    """A Fourier layer that keeps few modes, beside a convolution."""

    def __init__(self, modes: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4, 2 * modes, 2 * modes, modes, 2))
        self.lift, self.skip, self.head, self.modes = nn.Conv3d(1, 4, 1), nn.Conv3d(4, 4, 1), nn.Conv3d(4, 1, 1), modes

    def forward(self, x: Tensor) -> Tensor:
        """Return a volume of one channel."""
        y, m = self.lift(x), self.modes
        waves = torch.fft.rfftn(y, dim=(2, 3, 4))
        weight = torch.view_as_complex(self.weight)
        mixed = torch.zeros_like(waves)
        for d, own_d in ((slice(m), slice(m)), (slice(-m, None), slice(m, None))):
            for h, own_h in ((slice(m), slice(m)), (slice(-m, None), slice(m, None))):
                part = waves[:, :, d, h, :m]
                mixed[:, :, d, h, :m] = torch.einsum("bidhw,iodhw->bodhw", part, weight[:, :, own_d, own_h])
        y = functional.gelu(torch.fft.irfftn(mixed, s=y.shape[2:], dim=(2, 3, 4)) + self.skip(y))
        result: Tensor = self.head(y)
        return result


OWN = (
    Network("voxload", "UNet3D", lambda _: UNet3D(1, 2, widths=(4, 8)), uneven(2, 4)),
    Network("voxload", "functions alone", lambda _: FunctionalUNet(1, 2, (4, 8)), uneven(2, 4)),
    Network("voxload", "deep supervision, a dictionary", lambda _: DeepSupervision(), (9, 8, 11)),
    Network("voxload", "shifted windows, pixel shuffle", lambda _: Patches(), uneven(4)),
    Network("voxload", "squeeze and excitation, coordinates", lambda _: Excited(), (9, 7, 11), channels=1),
    Network("voxload", "causal convolutions", lambda _: Causal(), (9, 7, 11)),
    Network("voxload", "attention over all tokens", lambda _: Tokens(), uneven(4)),
    Network("voxload", "Fourier layer of few modes", lambda _: Modes(), (9, 8, 11)),
)
"""Ours."""
