"""Volumes: the samples of a workload, for voxload's own loader and for those of others."""

from __future__ import annotations

from pathlib import Path

from voxload.benchmark.loaders.protocol import Volume
from voxload.benchmark.workload.workload import Workload
from voxload.data.dataset import VolumeDataset
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.readers.axes import AxisOrder
from voxload.readers.protocol import Location, VolumeInfo
from voxload.readers.registry import find_format, open_reader
from voxload.readers.store import is_url

HDF5, ZARR2, ZARR3, NPY, RAW = "hdf5", "zarr2", "zarr3", "npy", "raw"
_FORMATS = {"HDF5": HDF5, "Zarr v2": ZARR2, "Zarr v3": ZARR3, "npy": NPY, "raw": RAW}
"""Our names of what readers describe in words."""


def dataset_of(workload: Workload, grid: ProcessGrid) -> VolumeDataset:
    """Return a workload's samples as the blocks of a rank; raises what VolumeDataset raises."""
    samples, share = workload.samples, workload.share
    return VolumeDataset(
        samples.location,
        fields={"x": samples.dataset} if samples.dataset else None,
        axes=samples.axes or None,
        allow_outside=samples.allow_outside,
        grid=grid,
        halo=share.halo,
        boundary=share.boundary,
    )


def volumes_of(data: VolumeDataset) -> tuple[Volume, ...]:
    """Return where and what the samples of a data set of one field are; opens each, and reads no voxel.

    Raises
    ------
    UsageError
        When the data set has several fields, or samples that share a stored volume.
    VoxloadError
        What opening a sample raises.
    """
    if len(data.field_names) != 1:
        raise UsageError(
            "samples",
            found=f"fields {', '.join(data.field_names)}",
            expected="one",
            remedy="name one of their datasets",
        )
    return tuple(_volume(data.locations(index)[0]) for index in range(len(data)))


def _volume(location: Location) -> Volume:
    if location.window is not None:
        raise UsageError(
            f"{location}",
            found="samples that share a stored volume",
            expected="one volume a sample, as other loaders read them",
            remedy="benchmark voxload's own loader, or convert without --split and --pack",
        )
    reader = open_reader(location)
    try:
        info = reader.describe()
    finally:
        reader.close()
    form = _FORMATS.get(info.format, info.format)
    path, dataset = _place(location, form)
    order = AxisOrder(info.axes)
    return Volume(
        path=path,
        dataset=dataset,
        shape=order.to_stored(info.shape),
        axes=info.axes,
        dtype=info.dtype.str,
        format=form,
        chunks=_chunks(info, order),
    )


def _chunks(info: VolumeInfo, order: AxisOrder) -> tuple[int, ...]:
    return () if info.chunks is None else order.to_stored(info.chunks)


def _place(location: Location, form: str) -> tuple[str, str]:
    """Return path and dataset as other libraries want them."""
    path = location.path if is_url(location.path) else str(Path(location.path).absolute())
    dataset = location.dataset
    if form == HDF5 and not dataset:
        (dataset,) = find_format(path).datasets(path)
    if form in (ZARR2, ZARR3):
        dataset = dataset or find_format(path).datasets(path)[0]
        return (f"{path}/{dataset}" if dataset else path), ""
    return path, dataset
