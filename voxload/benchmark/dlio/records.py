"""Records: how DLIO lays samples into files, in voxload's words, and the data set of them.

DLIO writes a record as a square of bytes, or with ``record_dims`` as an array, and the records of a file behind each
other along one axis more: the first one in HDF5, the last one in npy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from voxload.augment import Placement
from voxload.benchmark.dlio.settings import Options, Settings
from voxload.data.dataset import VolumeDataset
from voxload.data.lists.samples import Sample, Samples
from voxload.data.sample_reader import SampleReader
from voxload.errors import DataError, UsageError
from voxload.geometry import Boundary, Box, Halo
from voxload.grid import ProcessGrid
from voxload.readers.handles import Handles
from voxload.readers.protocol import Missing, ReadCost

_AXES = {("hdf5", 2): "DHW", ("hdf5", 3): "CDHW", ("npy", 2): "HWD", ("npy", 3): "DHWC"}
"""Letters of a file's axes by format and axes of a record: flat records lie along D, others along C."""
_FLAT = 2
_NAME = re.compile(r"records(_\d+)?")
"""Names of the datasets that DLIO writes: ``records``, or from release 2.0.1 on ``records_0`` and so on."""


@dataclass(frozen=True, slots=True)
class Records:
    """Where the samples of a file are."""

    axes: str
    """Letters of the stored axes, slowest first."""
    per_file: int
    """Samples of a file; behind each other along D where there are several."""
    fields: Mapping[str, str] | None
    """Name of each part of a record to its dataset; None where a file holds one array."""


def record_axes(settings: Settings) -> str:
    """Return the letters of a file's axes.

    Raises UsageError for records that are no planes or volumes, and for several volumes in a file.
    """
    dims = _dims(settings)
    axes = _AXES.get((settings.stored_format, len(dims) or _FLAT))
    if axes is None:
        raise UsageError(
            "workload.dataset.record_dims",
            found=str(list(dims)),
            expected="two extents (h, w) or three (d, h, w)",
            remedy="say record_dims that voxload has axes for",
        )
    if len(axes) > _FLAT + 1 and settings.per_file > 1:
        raise UsageError(
            "workload.dataset.num_samples_per_file",
            found=f"{settings.per_file} volumes in a file",
            expected="1: a block of one volume would be read out of all of them",
            remedy="generate the data with ++workload.dataset.num_samples_per_file=1",
        )
    return axes


def records_of(settings: Settings, path: str, datasets: Sequence[str]) -> Records:
    """Return where the samples of files like `path` are, which has these datasets of three and more axes.

    Raises
    ------
    UsageError
        What `record_axes` raises.
    DataError
        When the file has no dataset of DLIO's.
    """
    axes = record_axes(settings)
    if settings.stored_format == "npy":
        return Records(axes, settings.per_file, None)
    names = sorted((name for name in datasets if _NAME.fullmatch(name)), key=lambda name: (len(name), name))
    if not names:
        raise DataError(
            path,
            found=f"datasets {list(datasets)}",
            expected="records, or records_0 and so on, as DLIO writes them",
            remedy="generate the data anew with ++workload.workflow.generate_data=True",
        )
    return Records(axes, settings.per_file, {name: name for name in names})


def _dims(settings: Settings) -> tuple[int, ...]:
    """Return the extents of a part of a record as DLIO stores it; none for a square."""
    if settings.stored_format != "hdf5" or not settings.dims:
        return settings.dims
    first = settings.dims[0] // settings.parts
    return settings.dims[1:] if first == 1 else (first, *settings.dims[1:])


@dataclass(frozen=True, slots=True)
class Cut:
    """Who has which part of a sample."""

    grid: ProcessGrid
    halo: int = 0
    boundary: str = "zero"

    @classmethod
    def of(cls, options: Options, grid: ProcessGrid) -> Cut:
        """Return the cut that a user asked for."""
        return cls(grid, options.halo, options.boundary)


class RecordDataset(VolumeDataset):
    """Blocks of the samples in files of DLIO's; sample ``k`` of file ``f`` has the index ``f * per_file + k``.

    Parameters
    ----------
    files
        Paths, each once; they are numbered in the sorted order of their ids, as `VolumeDataset` has it.
    records
        Where the samples of a file are.
    cut
        Who has which part of a sample.

    Raises
    ------
    UsageError
        When a halo would reach from a sample of a file into the next; what `VolumeDataset` raises.
    """

    def __init__(self, files: Sequence[str], records: Records, cut: Cut) -> None:
        if records.per_file > 1 and Halo.parse(cut.halo) != Halo.parse(0):
            raise UsageError(
                "halo",
                found=f"{cut.halo} with {records.per_file} samples in a file",
                expected="0: samples of a file lie behind each other, and their neighbours are no surroundings",
                remedy="generate the data with ++workload.dataset.num_samples_per_file=1",
            )
        super().__init__(
            files,
            fields=records.fields,
            axes=records.axes,
            grid=cut.grid,
            halo=cut.halo,
            boundary=cut.boundary,
            # DLIO writes every voxel; what a file does not have was not generated.
            missing=Missing.ERROR,
        )
        self._per_file = records.per_file
        if records.per_file > 1:
            cutter = _RecordCutter(records.per_file, self.field_names, self._handles)
            self.use_samples(_RecordSamples(self.samples, records.per_file), cutter)

    @property
    def files(self) -> tuple[str, ...]:
        """Paths in the order in which they are numbered."""
        return tuple(self.locations(first)[0].path for first in range(0, len(self), self._per_file))


class _RecordSamples:
    """The samples of files of which each has several; see Samples."""

    targets_in_file: tuple[str, ...] = ()

    def __init__(self, files: Samples, per_file: int) -> None:
        self._files, self._per_file = files, per_file
        self.fields = files.fields
        self.ids = tuple(f"{name}[{place}]" for name in files.ids for place in range(per_file))

    def sample(self, index: int) -> Sample:
        """Return the file of a sample, by the sample's id."""
        return replace(self._files.sample(index // self._per_file), id=self.ids[index])


class _RecordCutter(SampleReader):
    """Reads one layer of a file, whose layers are samples, as if it were all of the file."""

    def __init__(self, per_file: int, fields: Sequence[str], handles: Handles) -> None:
        super().__init__(None, Boundary.ZERO, fields, handles=handles)
        self._per_file = per_file

    def extents(self, spatial: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the extents of a sample from those of its file."""
        return (1, *spatial[1:])

    def place(
        self, sample: Sample, index: int, *, epoch: int, repeat: int, spatial: tuple[int, int, int]
    ) -> tuple[Placement, ReadCost]:
        """Return where a sample lies in its file.

        Raises UsageError when the file has not as many samples as the workload says.
        """
        del epoch, repeat
        if spatial[0] != self._per_file:
            raise UsageError(
                f"{sample.locations[0]}",
                found=f"{spatial[0]} samples",
                expected=f"{self._per_file}, as workload.dataset.num_samples_per_file says",
                remedy="generate the data anew, or say what it has",
            )
        layer = index % self._per_file
        return Placement(Box((layer, 0, 0), (layer + 1, *spatial[1:]))), ReadCost()
