"""Cases: random layers, volumes and cuts of them, with blocks that are uneven, thinner than a halo, or empty."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from voxload.engine.arithmetic.blocks import Blocks

MESHES = (
    *((2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 3, 1), (3, 1, 1), (1, 1, 4)),
    *((2, 2, 1), (1, 2, 2), (3, 1, 2), (2, 2, 2)),
)
"""Blocks along (d, h, w); most have few, since a case takes as long as it has ranks."""
_MODES = ("zeros", "zeros", "zeros", "circular", "reflect", "replicate")
_LONGEST = 16


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One layer over one volume."""

    layer: nn.Module
    """In float64."""
    x: Tensor
    """The whole volume, (B, C, D, H, W), in float64."""
    blocks: Blocks
    """Its cut."""
    wanted: Blocks | None
    """A cut that is asked of the output, or None."""

    def __repr__(self) -> str:
        return f"{self.layer} on {tuple(self.x.shape)} cut {self.blocks}, wanted {self.wanted}"


def draw(random: Random, kind: str) -> Case | None:
    """Return a case for one of the names in `LAYERS`; None where torch itself refuses what was drawn."""
    mesh = random.choice(MESHES)
    extents = [random.randint(1, _LONGEST if count > 1 else 5) for count in mesh]
    channels = 4
    layer: Any = LAYERS[kind](random)
    layer = layer.double()
    torch.manual_seed(random.randint(0, 2**31))
    x = torch.randn(random.choice((1, 2)), channels, *extents, dtype=torch.float64)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    if _is_cancelled(layer, x):
        return None
    try:
        with torch.no_grad():
            y = copy.deepcopy(layer)(x)
    except (RuntimeError, ValueError):
        return None
    shape = tuple(y.shape[2:])
    # A window that lies in the padding alone has no largest voxel: torch's own derivative is arbitrary there.
    if 0 in shape or not bool(y.isfinite().all()):
        return None
    layer.train(random.random() < 0.8)
    cut = _even if kind == "usual convolution" and random.random() < 0.8 else _cut
    blocks = Blocks(tuple(cut(random, extent, count) for extent, count in zip(extents, mesh, strict=True)))
    wants = cut is _cut and kind in _ANY_CUT and random.random() < 0.5
    wanted = Blocks(tuple(_cut(random, extent, count) for extent, count in zip(shape, mesh, strict=True)))
    return Case(layer, x, blocks, wanted if wants else None)


def _is_cancelled(layer: nn.Module, x: Tensor) -> bool:
    """Tell whether a normalisation is over two values at most.

    These become +1 and -1 whatever they were: the derivative is nothing but a cancellation, and its relative error,
    torch's own too, that of rounding over epsilon.
    """
    voxels = prod(x.shape[2:])
    if isinstance(layer, nn.BatchNorm3d):
        return voxels * x.shape[0] <= 2
    if isinstance(layer, nn.GroupNorm):
        return voxels * x.shape[1] // layer.num_groups <= 2
    return isinstance(layer, nn.InstanceNorm3d) and voxels <= 2


def _cut(random: Random, extent: int, count: int) -> tuple[int, ...]:
    """Return bounds of `count` blocks, even in half of the cases."""
    if random.random() < 0.5:
        return tuple(index * extent // count for index in range(count + 1))
    return (0, *sorted(random.randint(0, extent) for _ in range(count - 1)), extent)


def _even(_random: Random, extent: int, count: int) -> tuple[int, ...]:
    """Return bounds of `count` blocks that are as even as they can be."""
    return tuple(index * extent // count for index in range(count + 1))


def _three(random: Random, low: int, high: int) -> tuple[int, int, int]:
    return random.randint(low, high), random.randint(low, high), random.randint(low, high)


def _conv(random: Random) -> nn.Module:
    kernel, stride, dilation = _three(random, 1, 5), _three(random, 1, 3), _three(random, 1, 3)
    padding: Any = tuple(random.randint(0, size * spread) for size, spread in zip(kernel, dilation, strict=True))
    if random.random() < 0.2:
        stride, padding = (1, 1, 1), "same"
    groups = random.choice((1, 2, 4))
    return nn.Conv3d(
        4,
        4,
        kernel,
        stride,
        padding,
        dilation,
        groups,
        bias=random.random() < 0.5,
        padding_mode=random.choice(_MODES),  # type: ignore[arg-type] # one of torch's modes
    )


def _usual(random: Random) -> nn.Module:
    """Return a convolution of the kind that networks have: small kernels that keep or halve the extents."""
    kernel, dilation = random.choice((1, 3, 3, 3, 5)), random.choice((1, 1, 2))
    mode: Any = random.choice(_MODES)
    return nn.Conv3d(
        4,
        4,
        kernel,
        random.choice((1, 1, 2)),
        kernel // 2 * dilation,
        dilation,
        random.choice((1, 1, 2)),
        bias=random.random() < 0.5,
        padding_mode=mode,
    )


def _transposed(random: Random) -> nn.Module:
    kernel, stride, dilation = _three(random, 1, 5), _three(random, 1, 3), _three(random, 1, 3)
    padding = tuple(random.randint(0, size - 1) for size in kernel)
    extra = tuple(random.randint(0, max(step, spread) - 1) for step, spread in zip(stride, dilation, strict=True))
    return nn.ConvTranspose3d(
        4,
        4,
        kernel,
        stride,
        padding,  # type: ignore[arg-type] # three numbers
        extra,  # type: ignore[arg-type] # as above
        random.choice((1, 2)),
        bias=random.random() < 0.5,
        dilation=dilation,
    )


def _pool_settings(random: Random) -> tuple[Any, Any, Any]:
    kernel, stride = _three(random, 1, 4), _three(random, 1, 4)
    return kernel, stride, tuple(random.randint(0, size // 2) for size in kernel)


def _max_pool(random: Random) -> nn.Module:
    kernel, stride, padding = _pool_settings(random)
    return nn.MaxPool3d(kernel, stride, padding, _three(random, 1, 2), ceil_mode=random.random() < 0.5)


def _avg_pool(random: Random) -> nn.Module:
    kernel, stride, padding = _pool_settings(random)
    return nn.AvgPool3d(
        kernel,
        stride,
        padding,
        ceil_mode=random.random() < 0.5,
        count_include_pad=random.random() < 0.5,
        divisor_override=random.choice((None, None, 3)),
    )


def _pad(random: Random) -> nn.Module:
    kinds: Any = (nn.ZeroPad3d, nn.CircularPad3d, nn.ReflectionPad3d, nn.ReplicationPad3d, nn.ConstantPad3d)
    kind = random.choice(kinds)
    lowest = -1 if kind in {nn.ZeroPad3d, nn.ConstantPad3d} else 0
    sides: Any = tuple(random.randint(lowest, 3) for _ in range(6))
    layer: nn.Module = kind(sides, 1.5) if kind is nn.ConstantPad3d else kind(sides)
    return layer


def _upsample(random: Random) -> nn.Module:
    mode = random.choice(("nearest", "nearest-exact", "trilinear"))
    corners = random.choice((False, True)) if mode == "trilinear" else None
    if random.random() < 0.5:
        return nn.Upsample(size=_three(random, 1, 12), mode=mode, align_corners=corners)
    factor = tuple(random.choice((0.5, 1.0, 1.5, 2.0, 2.7)) for _ in range(3))
    recompute = random.choice((None, True)) if corners is not True else None
    return nn.Upsample(scale_factor=factor, mode=mode, align_corners=corners, recompute_scale_factor=recompute)


def _batch_norm(random: Random) -> nn.Module:
    return nn.BatchNorm3d(
        4, momentum=random.choice((0.1, None)), affine=random.random() < 0.7, track_running_stats=random.random() < 0.7
    )


def _instance_norm(random: Random) -> nn.Module:
    return nn.InstanceNorm3d(4, affine=random.random() < 0.5, track_running_stats=random.random() < 0.5)


def _group_norm(random: Random) -> nn.Module:
    return nn.GroupNorm(random.choice((1, 2, 4)), 4, affine=random.random() < 0.7)


def _adaptive(random: Random) -> nn.Module:
    kind = random.choice((nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool3d))
    return kind(random.choice((1, _three(random, 1, 4), (None, 1, 2))))


LAYERS: dict[str, Callable[[Random], nn.Module]] = {
    "convolution": _conv,
    "usual convolution": _usual,
    "transposed convolution": _transposed,
    "maximum pooling": _max_pool,
    "average pooling": _avg_pool,
    "padding": _pad,
    "interpolation": _upsample,
    "batch norm": _batch_norm,
    "instance norm": _instance_norm,
    "group norm": _group_norm,
    "adaptive pooling": _adaptive,
}
"""Makes one random layer of each kind."""
_ANY_CUT = frozenset(LAYERS) - {"batch norm", "instance norm", "group norm", "adaptive pooling"}
"""Kinds whose output can be asked for in any cut."""
