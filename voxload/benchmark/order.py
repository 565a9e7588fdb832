"""Order: which samples each sample group loads in an epoch; pure.

It is drawn by the loader's own sampler over sample groups, which deals as torch's DistributedSampler does: so voxload
can foresee it, and every other loader is given the same.
"""

from __future__ import annotations

from voxload.benchmark.workload import SHUFFLED, Share
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.loader.sampler import GroupSampler


def group_sampler(share: Share, samples: int, grid: ProcessGrid) -> GroupSampler:
    """Return what draws the samples of this rank's group; all groups draw equally many, and the rest is left out.

    Raises UsageError when there are fewer samples than groups.
    """
    if samples < grid.groups:
        raise UsageError(
            "samples",
            found=f"{samples} for {grid.groups} sample groups",
            expected="one or more for each group",
            remedy="name more samples, use fewer ranks or cut samples into more blocks",
        )
    return GroupSampler(range(samples), grid, shuffle=share.order == SHUFFLED, seed=share.seed, drop_last=True)


def epoch_indices(share: Share, samples: int, grid: ProcessGrid, epoch: int) -> tuple[int, ...]:
    """Return the samples of this rank's group in an epoch, in order; the same on all ranks of the group.

    Shuffled, it is what torch's DistributedSampler over groups gives for the seed and the epoch; sequential, every
    so-manieth sample. All groups get equally many.

    Parameters
    ----------
    share
        Order and seed.
    samples
        Length of the data set.
    grid
        The ranks.
    epoch
        Its number, from 0.

    Raises
    ------
    UsageError
        When there are fewer samples than groups.
    """
    sampler = group_sampler(share, samples, grid)
    sampler.set_epoch(epoch)
    return tuple(sampler)
