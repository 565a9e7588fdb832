"""Upsample in split form: every output's weights follow from its global position."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from voxload.engine.arithmetic.axis_plan import FIRST_AXIS
from voxload.engine.arithmetic.layer_plan import Tile
from voxload.engine.arithmetic.windows import Interval, clamped
from voxload.engine.layers.form import with_forward
from voxload.engine.layers.stencil import HANDED, Stencil, cropped
from voxload.engine.run.tensors import sent
from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES

MODES = ("nearest", "nearest-exact", "trilinear")
"""Interpolations of volumes that torch has."""
_CHANNELS_LAST = 4
"""Channels from which on torch has a kernel of its own for them on CPUs."""


class Rounding(enum.Enum):
    """How a kernel of torch computes the places of nearest neighbours; where an output lies on a border, they differ.

    Source: torch 2.13, aten/src/ATen/native/cpu/UpSampleKernel.cpp and cuda/UpSample.cuh, and comparison with them.
    """

    SINGLE = enum.auto()
    """In single precision: on GPUs, and on CPUs for everything else."""
    DOUBLE = enum.auto()
    """In double precision, and rounded to single before the floor: on CPUs for float64, channels first."""
    HALVES = enum.auto()
    """As SINGLE, but by integers where the extent stays or doubles: on CPUs, of several channels that lie last."""

    @classmethod
    def of(cls, x: Tensor) -> Rounding:
        """Return how torch rounds for a volume."""
        if x.device.type != "cpu":
            return cls.SINGLE
        if x.shape[1] >= _CHANNELS_LAST and x.is_contiguous(memory_format=torch.channels_last_3d):
            return cls.HALVES
        return cls.DOUBLE if x.dtype is torch.float64 else cls.SINGLE


@dataclass(frozen=True, slots=True)
class Resize:
    """Where the outputs of an interpolation lie among the inputs along one axis, in torch's own arithmetic.

    >>> Resize(mode="trilinear", factor=2.0).needs((0, 3, 8), 4)
    ((0, 3), (1, 4))
    """

    mode: str
    """One of `MODES`."""
    size: int | None = None
    """Outputs, or None: then `factor` says it."""
    factor: float | None = None
    """Outputs per input."""
    align_corners: bool = False
    """Whether the first and the last voxel's centres stay where they are."""
    recompute: bool = False
    """Whether the step between outputs follows from the extents even where a factor is given."""

    def outputs(self, extent: int) -> int:
        """Return the number of outputs over an axis of `extent` voxels."""
        return self.size if self.size is not None else int(np.floor(float(extent) * float(self.factor or 0)))

    def owners(self, bounds: tuple[int, ...]) -> tuple[int, ...]:
        """Return bounds at the same share of the axis."""
        extent = max(bounds[-1], 1)
        count = self.outputs(bounds[-1])
        return clamped([-(-bound * count // extent) for bound in bounds[1:-1]], count)

    def needs(self, outputs: tuple[int, ...], extent: int) -> tuple[Interval, ...]:
        """Return, per rank, the inputs between the first and the last that its `outputs` read."""
        found = []
        for first, stop in pairwise(outputs):
            if stop == first:
                found.append((0, 0))
                continue
            # A plan knows neither types nor memory formats: what any of them needs is gathered.
            each = [self.sources(first, stop, extent, rounding) for rounding in Rounding]
            found.append((min(int(low[0]) for low, _, _ in each), max(int(high[-1]) for _, high, _ in each) + 1))
        return tuple(found)

    def sources(
        self, first: int, stop: int, extent: int, rounding: Rounding
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return, for outputs [first, stop), the two inputs on either side and the weight of the second."""
        step = self._step(extent)
        positions = np.arange(first, stop)
        if self.mode != "trilinear":
            places = np.minimum(self._nearest(positions, extent, rounding), extent - 1)
            return places, places, np.zeros(len(places))
        exact = positions * step if self.align_corners else np.maximum((positions + 0.5) * step - 0.5, 0.0)
        low = np.minimum(np.floor(exact).astype(np.int64), extent - 1)
        return low, np.minimum(low + 1, extent - 1), np.clip(exact - low, 0.0, 1.0)

    def _nearest(self, positions: np.ndarray, extent: int, rounding: Rounding) -> np.ndarray:
        """Return the nearest input of each output, as the kernel of torch does that rounds so."""
        step, count = self._step(extent), self.outputs(extent)
        is_exact = self.mode == "nearest-exact"
        if rounding is Rounding.DOUBLE:
            places = (step * (positions + 0.5) - 0.5) + 0.5 if is_exact else positions * step
            return np.asarray(np.floor(places.astype(np.float32)), np.int64)
        if rounding is Rounding.HALVES and not is_exact and count in (extent, 2 * extent):
            return np.asarray(positions * extent // count)
        shift = np.float32(0.5 if is_exact else 0.0)
        return np.asarray(np.floor((positions.astype(np.float32) + shift) * np.float32(step)), np.int64)

    def describe(self) -> str:
        """Return the settings."""
        return f"size {self.size}, scale factor {self.factor}"

    def _step(self, extent: int) -> float:
        """Return the inputs between neighbouring outputs."""
        count = self.outputs(extent)
        if self.align_corners:
            return (extent - 1) / (count - 1) if count > 1 else 0.0
        given = self.factor is not None and not self.recompute
        return 1.0 / float(self.factor or 1.0) if given else extent / count


def _interpolated(layer: Any, x: Tensor, tile: Tile) -> Tensor:
    """Return this rank's outputs: interpolate axis by axis between the inputs that were gathered."""
    rounding = Rounding.of(x)
    for axis, reach in enumerate(_resizes(layer)):
        first, extent = tile.first[axis], tile.extents[axis]
        low, high, weight = reach.sources(first, first + extent, tile.shape[axis], rounding)
        x = mixed(x, FIRST_AXIS + axis, (low - tile.start[axis], high - tile.start[axis]), weight)
    return cropped(x, tile)


def mixed(x: Tensor, dim: int, places: tuple[np.ndarray, np.ndarray], weight: np.ndarray) -> Tensor:
    """Return the weighted means of the two neighbours at `places` along `dim`."""
    low, high = (sent(torch.from_numpy(place), x.device) for place in places)
    nearest = x.index_select(dim, low)
    if not weight.any():
        return nearest
    shape = [1] * x.ndim
    shape[dim] = -1
    part = sent(torch.from_numpy(weight).to(x.dtype), x.device).view(shape)
    return nearest * (1 - part) + x.index_select(dim, high) * part


def split_upsample(layer: nn.Upsample, split: tuple[bool, ...]) -> tuple[Stencil, nn.Module]:
    """Return the stencil of `layer`: nearest, nearest-exact or trilinear, to a size or by a factor, both corner rules.

    Raises UsageError for other modes.
    """
    if layer.mode not in MODES:
        raise UsageError("Upsample", found=f"mode={layer.mode!r}", expected=" or ".join(map(repr, MODES)))
    reaches = _resizes(layer)
    return Stencil("Upsample", reaches, HANDED, (True,) * len(split)), with_forward(layer, _interpolated)


def _resizes(layer: nn.Upsample) -> tuple[Resize, ...]:
    """Return the arithmetic of `layer`, one per axis."""
    return tuple(
        Resize(
            layer.mode,
            size=_of(layer.size, axis, int),
            factor=_of(layer.scale_factor, axis, float),
            align_corners=bool(layer.align_corners),
            recompute=bool(layer.recompute_scale_factor),
        )
        for axis in range(len(SPATIAL_AXES))
    )


def _of(value: Any, axis: int, kind: type) -> Any:
    """Return the setting of one axis as a `kind` of number; None stays None."""
    if value is None:
        return None
    return kind(value[axis] if isinstance(value, tuple | list) else value)
