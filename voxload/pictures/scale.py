"""Scale: one range of colours for all planes of a picture, whose bar has plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.files.pictures import Plane, drawing

COLOURS = "magma"
ODD = "#2fe07a"
"""Of voxels that are no finite numbers; the colours have no green."""
_DECADES = 100
"""Counts from 0 on whose largest is this or more have colours by their logarithm."""
_TICKS = 6
_APART = 0.08
"""Least distance of two numbers at the bar, as a share of its length."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of values that have colours."""

    low: float
    high: float
    is_logarithmic: bool
    """Whether colours go by log(1 + value)."""
    divisor: float = 1.0
    """What values are divided by before they are drawn: 1 but where their range is no number."""
    is_known: bool = True
    """Whether there is a finite voxel at all."""

    @classmethod
    def of(cls, planes: Sequence[Plane]) -> Scale:
        """Return the scale that shows the finite voxels of all planes."""
        finite = [values for plane in planes if (values := _finite(plane)).size]
        if not finite:
            return cls(0.0, 1.0, is_logarithmic=False, is_known=False)
        low, high = min(float(values.min()) for values in finite), max(float(values.max()) for values in finite)
        are_counts = all(plane.dtype.kind in "iu" for plane in planes) and low >= 0
        divisor = 1.0 if math.isfinite(high - low) and math.isfinite(2 * high) else 4.0
        if low == high:
            # One value has a colour in the middle.
            value = low / divisor
            low, high = value - (abs(value) or 1.0) / 2, value + (abs(value) or 1.0) / 2
            return cls(low, high, is_logarithmic=False, divisor=divisor)
        return cls(low / divisor, high / divisor, are_counts and high >= _DECADES, divisor)

    @property
    def label(self) -> str:
        """What stands beside the bar."""
        if not self.is_known:
            return "no voxel is a finite number"
        value = "voxel" if self.divisor == 1 else f"voxel / {self.divisor:g}"
        return f"{value}, colours by log(1 + voxel)" if self.is_logarithmic else value

    def norm(self) -> Any:
        """Return what maps values to colours, of matplotlib's."""
        colors = drawing("matplotlib.colors")
        if self.is_logarithmic:
            return colors.FuncNorm((np.log1p, np.expm1), vmin=self.low, vmax=self.high)
        return colors.Normalize(vmin=self.low, vmax=self.high)

    def colours(self) -> Any:
        """Return the colours, of matplotlib's, with their own for what is no finite number."""
        return drawing("matplotlib").colormaps[COLOURS].with_extremes(bad=ODD)

    def drawn(self, plane: Plane) -> npt.NDArray[np.float64]:
        """Return a plane as floats to be drawn, with NaN for all that is no finite number."""
        values = plane.astype(np.float64) / self.divisor
        values[~np.isfinite(values)] = np.nan
        return values

    def ticks(self) -> list[float]:
        """Return the numbers at the bar, ascending, far enough apart to be read."""
        if not self.is_logarithmic:
            locator = drawing("matplotlib.ticker").MaxNLocator(_TICKS)
            return [float(tick) for tick in locator.tick_values(self.low, self.high) if self.low <= tick <= self.high]
        tens = (10.0**power for power in range(math.ceil(math.log10(self.high)) + 1))
        wanted = [self.high, self.low, *(tick for tick in tens if self.low < tick < self.high)]
        length = math.log1p(self.high) - math.log1p(self.low)
        kept: list[float] = []
        for tick in wanted:
            if all(abs(math.log1p(tick) - math.log1p(other)) > _APART * length for other in kept):
                kept.append(tick)
        return sorted(kept)


def _finite(plane: Plane) -> Plane:
    if plane.dtype.kind in "iub":
        return plane.ravel()
    values = plane.astype(np.float64)
    found: Plane = values[np.isfinite(values)]
    return found
