"""CoarseGrids: fields of which one voxel stands for several of the others', such as labels and boundary data.

A block of such a field is that of the others, each boundary divided by the ratio. So ranks may only be parted where the
coarse voxels are, and a halo is as many coarse voxels as reach as far as the others', or farther.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from voxload.errors import DataError, UsageError
from voxload.geometry import SPATIAL_AXES, Box, Halo
from voxload.grid import ProcessGrid

Extents = tuple[int, ...]
_SAME: Extents = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class CoarseGrids:
    """How many voxels (d, h, w) of the finest fields one of each field stands for; pure."""

    fields: tuple[str, ...]
    """Names of the fields, in order."""
    ratios: tuple[Extents, ...]
    """One for each field; (1, 1, 1) for the finest."""

    @classmethod
    def of(cls, given: Mapping[str, int | Sequence[int]] | None, fields: Sequence[str]) -> CoarseGrids:
        """Return the ratios of some fields; all others are the finest.

        Raises UsageError for other names, for what are no ratios, and where no field is left as the finest.
        """
        wanted = dict(given or {})
        unknown = set(wanted) - set(fields)
        if unknown:
            raise UsageError("coarser", found=f"field {min(unknown)!r}", expected=f"one of {list(fields)}")
        ratios = tuple(_ratio(name, wanted.get(name, 1)) for name in fields)
        if all(ratio != _SAME for ratio in ratios):
            raise UsageError(
                "coarser", found="every field", expected="one or more that are left out, on the finest grid"
            )
        return cls(tuple(fields), ratios)

    def __bool__(self) -> bool:
        return any(ratio != _SAME for ratio in self.ratios)

    def check(self, sample: str, extents: Sequence[Extents]) -> None:
        """Refuse a sample whose fields, of these extents (D, H, W), do not fit each other; raises DataError."""
        if not self and len(set(extents)) == 1:
            return
        whole = {self._whole(number, one) for number, one in enumerate(extents)}
        if len(whole) > 1:
            ratios = f", of which {self.ratios} voxels are one" if self else ""
            raise DataError(
                f"sample {sample!r}",
                found=", ".join(f"{name} {one}" for name, one in zip(self.fields, extents, strict=True)) + ratios,
                expected="fields of one spatial shape",
                remedy=""
                if self
                else 'say coarser={"NAME": 2} of a field whose voxels stand for 2 x 2 x 2 of the others',
            )

    def finest(self, extents: Extents) -> tuple[int, int, int]:
        """Return the extents (D, H, W) of the finest fields, from those of the first."""
        d, h, w = self._whole(0, extents)
        return d, h, w

    def _whole(self, number: int, extents: Extents) -> Extents:
        return tuple(map(operator.mul, extents, self.ratios[number]))

    def blocks(self, grid: ProcessGrid, halo: Halo, spatial: Extents) -> tuple[Box, ...]:
        """Return a rank's box of each field of a sample, halo included; `spatial` are the finest extents.

        Raises UsageError where a rank's block begins or ends within a coarse voxel.
        """
        return tuple(_block(grid, halo, spatial, ratio) for ratio in self.ratios)


@lru_cache(maxsize=1024)
def _block(grid: ProcessGrid, halo: Halo, spatial: Extents, ratio: Extents) -> Box:
    """Return a rank's box of a field; remembered, for it is the same of all samples of one shape."""
    fine = grid.block(spatial)
    if any(at % one for at, one in zip((*fine.start, *fine.stop), (*ratio, *ratio), strict=True)):
        raise UsageError(
            f"block {fine} of a sample of {spatial}",
            found=f"a boundary within a voxel of a field that is {ratio} times coarser",
            expected="blocks that begin and end where coarse voxels do",
            remedy="choose another grid of ranks, or other extents",
        )
    start, stop = (tuple(map(operator.floordiv, ends, ratio)) for ends in (fine.start, fine.stop))
    low, high = (
        tuple(-(-width // one) for width, one in zip(side, ratio, strict=True)) for side in (halo.low, halo.high)
    )
    return Box(start, stop).expand(Halo(low, high))


def _ratio(name: str, given: Any) -> Extents:
    try:
        values = (given,) * len(SPATIAL_AXES) if not isinstance(given, Sequence) else tuple(given)
        ratio = tuple(map(operator.index, values))
    except TypeError:
        ratio = ()
    if len(ratio) != len(SPATIAL_AXES) or min(ratio) < 1:
        raise UsageError(
            f"coarser[{name!r}]", found=repr(given), expected="a whole number of 1 or more, or three for (d, h, w)"
        )
    return ratio
