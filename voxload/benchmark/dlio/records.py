"""Records: how DLIO lays samples into a file, in voxload's words; pure.

DLIO writes a record as a square of bytes, or with ``record_dims`` as an array, and the records of a file behind each
other along one axis more: the first one in HDF5, the last one in npy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from voxload.benchmark.dlio.settings import Settings
from voxload.errors import DataError, UsageError

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
