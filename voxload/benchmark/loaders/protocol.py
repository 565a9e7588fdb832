"""BenchLoader: the contract of whatever can be measured as a loader, and the order that it is asked for.

Order: which samples each sample group loads in an epoch; pure. It is drawn by the loader's own sampler over sample
groups, which deals as torch's DistributedSampler does: so voxload can foresee it, and every other loader is given the
same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from voxload.benchmark.workload.workload import SHUFFLED, Share, Workload
from voxload.data.dataset import VolumeDataset
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


@dataclass(frozen=True, slots=True)
class Volume:
    """One stored sample as a loader that is not voxload's needs to know it."""

    path: str
    """The file, or the folder of a Zarr array, absolute; or a URL."""
    dataset: str
    """Name of the dataset in it; empty where the file is one array."""
    shape: tuple[int, ...]
    """Extents as stored, in the order of `axes`."""
    axes: str
    """Letters of the stored axes: some of C, D, H and W, each once."""
    dtype: str
    """Type of a voxel, as numpy names it."""
    format: str
    """``hdf5``, ``zarr2``, ``zarr3``, ``npy`` or ``raw``; else the words of the reader that knows it."""
    chunks: tuple[int, ...] = ()
    """Extents of the smallest unit that can be decoded, in the order of `axes`; empty where there is none."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one rank has to load; made by every rank of the job at the same point."""

    workload: Workload
    grid: ProcessGrid
    """The ranks, of which some may be absent; see `Share.ranks_of`."""
    data: VolumeDataset
    """The samples, as this rank's blocks; it knows their ids and boxes. Other loaders read none of it."""
    volumes: tuple[Volume, ...]
    """The same samples, by the data set's indices; voxload's own loader reads none of it."""
    node_ranks: int = 1
    """Ranks that run on this rank's node, itself included: they share its memory and its disk."""


class BenchLoader(Protocol):
    """A loader that is ready for its first epoch; used by one thread."""

    def epoch(self, number: int, indices: tuple[int, ...]) -> Iterator[Tensor]:
        """Yield this rank's batches ``(B, C, d, h, w)``, halo included, of one epoch, in the stored dtype.

        Parameters
        ----------
        number
            The epoch, from 0.
        indices
            Samples of this rank's group in the order that is asked for, the same on all ranks of the group: what
            `voxload.benchmark.loaders.protocol.epoch_indices` gives, or its first batches. A last batch may be smaller.

        The iterator may be left before its end; the next epoch ends it. A batch need stay valid only until the next
        one is asked for.
        """
        ...

    def counts(self) -> Mapping[str, Any]:
        """Return what the loader itself counted since it was made; empty where it counts nothing.

        Known words: ``bytes_read`` (asked of the storage), ``bytes_decoded``, ``seconds_stalled`` (the consumer waited
        for data, and not for other ranks), and ``sources``: bytes, blocks and seconds by ``storage``, ``memory``,
        ``disk``, ``peer``.
        """
        ...

    def close(self) -> None:
        """Stop threads and processes, and close files; an epoch under way ends."""
        ...


class LoaderKind(Protocol):
    """A way of loading, before it is told what.

    Those of others register a class, to be called without arguments, in the entry-point group ``voxload.benchmark``.
    One that reads the data set of its task itself says ``reads_data = True``: it is given no volumes then, which would
    have to be opened for it.
    """

    @property
    def name(self) -> str:
        """What ``--loader`` says; of an entry point, its name too."""
        ...

    @property
    def title(self) -> str:
        """What tables say."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """Modules that must be importable."""
        ...

    @property
    def formats(self) -> tuple[str, ...]:
        """Formats that it reads; see `Volume.format`."""
        ...

    def build(self, task: Task) -> BenchLoader:
        """Return a loader for one rank; this counts to the time to the first batch.

        Raises UsageError for what it cannot do, such as tiers, which are voxload's.
        """
        ...
