"""What lies at each position of an axis, by numpy's padding: an oracle that shares no code with the engine."""

from __future__ import annotations

import numpy as np

from voxload.engine.arithmetic.axis_plan import PaddingMode

_MODES = {PaddingMode.CIRCULAR: "wrap", PaddingMode.REFLECT: "reflect", PaddingMode.REPLICATE: "edge"}


def sources(lo: int, hi: int, extent: int, outside: PaddingMode) -> list[int | None]:
    """Return the voxel that stands at each of the positions ``[lo, hi)``; None outside of a constant's reach."""
    before, after = max(-lo, 0), max(hi - extent, 0)
    voxels = np.arange(extent)
    if outside is PaddingMode.CONSTANT:
        line = np.pad(voxels, (before, after), constant_values=-1)
    else:
        line = np.pad(voxels, (before, after), mode=_MODES[outside])  # type: ignore[call-overload] # a word
    return [None if voxel < 0 else int(voxel) for voxel in line[lo + before : hi + before]]
