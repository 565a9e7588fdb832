"""BenchLoader: the contract of whatever can be measured as a loader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from voxload.benchmark.workload import Workload
from voxload.dataset import VolumeDataset
from voxload.grid import ProcessGrid


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
    """``hdf5``, ``zarr2``, ``zarr3``, ``npy`` or ``raw``."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one rank has to load; made by every rank of the job at the same point."""

    workload: Workload
    grid: ProcessGrid
    """The ranks, of which some may be absent; see `Share.ranks_of`."""
    data: VolumeDataset
    """The samples, as this rank's blocks; it knows their ids and boxes. Other loaders read none of it."""
    volumes: tuple[Volume, ...]
    """The same samples, by the data set's indices."""


class BenchLoader(Protocol):
    """A loader that is ready for its first epoch; used by one thread."""

    def epoch(self, number: int, indices: tuple[int, ...]) -> Iterator[Tensor]:
        """Yield this rank's batches ``(B, C, d, h, w)``, halo included, of one epoch, in the stored dtype.

        Parameters
        ----------
        number
            The epoch, from 0.
        indices
            Samples of this rank's group in the order that is asked for; the same on all ranks of the group. A last
            batch may be smaller. The iterator may be left before its end.

        A batch need stay valid only until the next one is asked for.
        """
        ...

    def counts(self) -> Mapping[str, Any]:
        """Return what the loader itself counted since it was made; empty where it counts nothing.

        Known words: ``bytes_read`` (asked of the storage), ``bytes_decoded``, and ``sources``: bytes, blocks and
        seconds by ``storage``, ``memory``, ``disk``, ``peer``.
        """
        ...

    def close(self) -> None:
        """Stop threads and processes."""
        ...


class LoaderKind(Protocol):
    """What the entry point of a loader is: a way of loading, before it is told what."""

    name: str
    """What ``--loader`` says."""
    title: str
    """What tables say."""
    needs: tuple[str, ...]
    """Modules that must be importable."""
    formats: tuple[str, ...]
    """Formats that it reads; see `Volume.format`."""

    def build(self, task: Task) -> BenchLoader:
        """Return a loader for one rank; this counts to the time to the first batch.

        Raises UsageError for what it cannot do, such as tiers, which are voxload's.
        """
        ...
