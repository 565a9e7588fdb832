"""Members: which sample of a volume a voxel belongs to; pure."""

from __future__ import annotations

from collections.abc import Sequence

from voxload.convert.manifest import Member


class Members:
    """The samples of one volume, all of one shape, side by side.

    Parameters
    ----------
    members
        The samples.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._shape = members[0].shape
        self._numbers = {self._key(member.start): number for number, member in enumerate(members)}

    def at(self, voxel: Sequence[int]) -> int:
        """Return the number of the sample that holds a voxel (d, h, w)."""
        return self._numbers[self._key(voxel)]

    def _key(self, voxel: Sequence[int]) -> tuple[int, ...]:
        return tuple(index // extent for index, extent in zip(voxel, self._shape, strict=True))
