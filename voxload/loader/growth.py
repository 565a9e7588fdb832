"""Growth: which generation of a catalogue that is followed an epoch has, agreed upon by all ranks.

Rules of this file:

1. An epoch has one generation, the same on all ranks: the latest that all of them see when it begins.
2. An epoch that goes on half-way goes on with the generation that it began with.
3. Nothing changes under an iterator that somebody holds: while there is one, on any rank, the generation stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist

from voxload.data.dataset import VolumeDataset
from voxload.errors import StorageError, UsageError, VoxloadError
from voxload.grid import ProcessGrid
from voxload.loader.collectives import Rendezvous


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a rank tells the others when an epoch begins."""

    newest: int
    """The latest generation that it could have, or the one that it has to keep."""
    goes_on: bool
    """Whether the epoch began before."""
    is_kept: bool
    """Whether the generation has to stay what it is."""
    problem: str = ""
    """Why it does not know."""


class Growth:
    """One loader's choice of generations; used by one thread.

    Parameters
    ----------
    data
        A data set that follows its catalogue.
    """

    def __init__(self, data: VolumeDataset) -> None:
        self._data = data
        self._rendezvous: Rendezvous | None = None

    def take_up(self, *, goes_on: bool, is_busy: bool) -> None:
        """Let the data set have the generation of the epoch that begins now; called by all ranks.

        Parameters
        ----------
        goes_on
            Whether the epoch began before.
        is_busy
            Whether somebody holds an iterator.

        Raises
        ------
        UsageError
            When ranks go on with epochs of different generations, or have no way to tell each other.
        StorageError, DataError, NotFoundError
            When this rank or another one cannot read the catalogue.
        """
        error: VoxloadError | None = None
        current, following = self._data.generation or 0, self._data.following
        mine = _Seen(current, goes_on, is_kept=goes_on or is_busy)
        if following is not None and not mine.is_kept:
            try:
                mine = _Seen(following.newest(), goes_on=False, is_kept=False)
            except VoxloadError as found:
                error, mine = found, _Seen(current, goes_on=False, is_kept=False, problem=str(found))
        everyone = self._gathered(mine)
        if error is not None:
            raise error
        for rank, one in enumerate(everyone):
            if one.problem:
                raise StorageError(
                    f"catalogue as rank {rank} sees it", found=one.problem, remedy="see that rank's node"
                )
        self._data.refresh(_chosen(everyone))

    def _gathered(self, mine: _Seen) -> list[_Seen]:
        grid = self._data.grid
        if grid.world_size == 1:
            return [mine]
        if self._rendezvous is None:
            _check(grid)
            self._rendezvous = Rendezvous(grid)
        return self._rendezvous.gather(mine, _Seen)

    def close(self) -> None:
        """Leave the other ranks; the next epoch meets them again."""
        rendezvous, self._rendezvous = self._rendezvous, None
        if rendezvous is not None:
            rendezvous.close()


def _chosen(everyone: list[_Seen]) -> int:
    """Return the generation for all ranks."""
    kept = {one.newest for one in everyone if one.is_kept}
    common = min(one.newest for one in everyone)
    if len({one.goes_on for one in everyone}) > 1:
        found = [rank for rank, one in enumerate(everyone) if one.goes_on]
        raise UsageError(
            "epoch of a catalogue that is followed",
            found=f"ranks {found} that go on half-way, and others that begin",
            expected="the same on all ranks",
            remedy="load the same state on all of them",
        )
    if len(kept) > 1 or (kept and common < max(kept)):
        raise UsageError(
            "epoch of a catalogue that is followed",
            found=f"ranks at generations {sorted({one.newest for one in everyone})}",
            expected="one on all ranks",
            remedy="load the same state on all of them",
        )
    return kept.pop() if kept else common


def _check(grid: ProcessGrid) -> None:
    if not (dist.is_available() and dist.is_initialized()):
        raise UsageError(
            "follow",
            found=f"{grid.world_size} ranks, and torch.distributed not initialised",
            expected="a way to agree on what all of them read",
            remedy="call torch.distributed.init_process_group before the first batch",
        )
