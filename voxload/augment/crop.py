"""RandomCrop: a part of each sample, common to the ranks of a group."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from voxload.augment.centres import ClassCentres
from voxload.augment.draws import Draws
from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES


@dataclass(frozen=True, slots=True, init=False)
class RandomCrop:
    """Cuts a box of one size out of each sample; the grid then parts the box as it would part a sample.

    Without `centres` every box inside the sample is as likely. A box lies inside the sample along each axis on which
    the sample is large enough.
    """

    size: tuple[int, int, int]
    """Extents (D, H, W) of the crop; one int stands for three."""
    centres: ClassCentres | None
    """Around which voxels crops are centred; moved inside where they would reach out."""
    pad: bool
    """What a sample smaller than the crop becomes: False refuses it, True puts it in the middle of what its boundary
    gives."""

    def __init__(self, size: int | Sequence[int], *, centres: ClassCentres | None = None, pad: bool = False) -> None:
        try:
            # index() takes numpy's integers too, and refuses 1.0, "1" and None.
            given = size if isinstance(size, Sequence) else (size,) * len(SPATIAL_AXES)
            extents = tuple(map(operator.index, given))
        except TypeError:
            extents = ()
        if len(extents) != len(SPATIAL_AXES) or min(extents) < 1:
            raise UsageError("size of RandomCrop", found=repr(size), expected="one extent, or three for (d, h, w)")
        for name, value in (("size", extents), ("centres", centres), ("pad", pad)):
            object.__setattr__(self, name, value)

    def start(self, extents: Sequence[int], draws: Draws, centre: Sequence[int] | None) -> tuple[int, ...]:
        """Return the first voxel of a crop of a sample of `extents`, around `centre` or anywhere.

        A crop of even extent has one voxel more before its centre than behind it.

        Raises UsageError when the sample is too small.
        """
        free = [extent - size for extent, size in zip(extents, self.size, strict=True)]
        if min(free) < 0 and not self.pad:
            raise UsageError(
                "RandomCrop",
                found=f"extents {tuple(extents)}",
                expected=f"{self.size} or more",
                remedy="crop less, leave the sample out, or say pad=True",
            )
        if centre is None:
            return tuple(draws.below(room + 1) if room >= 0 else -(-room // 2) for room in free)
        wanted = (voxel - size // 2 for voxel, size in zip(centre, self.size, strict=True))
        return tuple(
            min(max(begin, 0), room) if room >= 0 else -(-room // 2) for begin, room in zip(wanted, free, strict=True)
        )
