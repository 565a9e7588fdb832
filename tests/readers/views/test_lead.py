"""LeadReader and StackedReader: arrays of many samples, time steps and datasets, against numpy."""

from __future__ import annotations

from contextlib import closing
from itertools import permutations, product
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import zarr

from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, Missing, open_reader
from voxload.readers.hdf5.reader import Hdf5Reader
from voxload.readers.protocol import Lead, Reader
from voxload.readers.views.located import located
from voxload.readers.zarr.reader import ZarrReader

EXTENTS = {"N": 3, "T": 5, "C": 2, "D": 4, "H": 5, "W": 7}
CHUNKS = {"N": 2, "T": 2, "C": 2, "D": 3, "H": 2, "W": 4}
ORDERS = ("NTCDHW", "TCDHW", "NDHW", "TDHWC", "WHDCTN", "DTHCNW", "HW", "CHW", "NTHW", "HTCW")
"""Some axes of each kind: with and without N, T, C and D, in front, behind and between the others."""
PICKED = ([0], [4], [1, 2, 3], [0, 2, 4], [3, 0, 1, 1], [4, 3, 2, 1, 0])
"""Steps: one, neighbours, with gaps, backwards, and one twice."""
STORES = ("npy", "contiguous", "gzip", "h5py", "zarr", "sharded", "zarr-python", "zarr2")


def shape_of(axes: str, extents: dict[str, int] = EXTENTS) -> tuple[int, ...]:
    """Return the extents of a stored array."""
    return tuple(extents[axis] for axis in axes)


def write(folder: Path, store: str, stored: npt.NDArray[Any], axes: str) -> Location:
    """Store an array."""
    chunks = shape_of(axes, CHUNKS)
    if store == "npy":
        np.save(folder / "x.npy", stored)
        return Location(str(folder / "x.npy"), axes=axes)
    if store in ("contiguous", "gzip", "h5py"):
        options: dict[str, Any] = (
            {} if store == "contiguous" else {"chunks": chunks, "compression": "gzip", "shuffle": True}
        )
        with h5py.File(folder / "x.h5", "w") as file:
            file.create_dataset("x", data=stored, **options)
        return Location(str(folder / "x.h5"), "x", axes=axes)
    shards = tuple(2 * extent for extent in chunks) if store == "sharded" else None
    array = zarr.create_array(
        folder / "x.zarr",
        shape=stored.shape,
        dtype=stored.dtype,
        chunks=chunks,
        shards=shards,
        zarr_format=2 if store == "zarr2" else 3,
    )
    array[...] = stored
    return Location(str(folder / "x.zarr"), axes=axes)


def opened(location: Location, store: str) -> Reader:
    """Open an array natively, or by its library."""
    if store == "h5py":
        return Hdf5Reader(location, Missing.ERROR)
    if store == "zarr-python":
        return ZarrReader(location, Missing.ERROR)
    return open_reader(location)


@pytest.mark.few_cases(5)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("axes", ORDERS)
def test_arrays_of_many_keep_the_laws(laws: ModuleType, tmp_path: Path, store: str, axes: str) -> None:
    """An array with any axes is a Reader of a volume whose channels are its samples, steps and channels."""
    stored = laws.voxels(shape_of(axes))
    with closing(opened(write(tmp_path, store, stored, axes), store)) as reader:
        laws.check_reader(reader, laws.to_volume(stored, axes))


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("axes", [axes for axes in ORDERS if "N" in axes or "T" in axes])
@pytest.mark.parametrize("store", ["npy", "gzip", "sharded"])
def test_one_sample_and_any_steps_are_what_numpy_picks(laws: ModuleType, tmp_path: Path, store: str, axes: str) -> None:
    """Any sample, and any steps in any order, one of them twice too."""
    stored = laws.voxels(shape_of(axes))
    place = write(tmp_path, store, stored, axes)
    whole = laws.to_volume(stored, axes)
    samples, steps, channels = (EXTENTS[axis] if axis in axes else 1 for axis in "NTC")
    by_step = whole.reshape(samples, steps, channels, *whole.shape[1:])
    with closing(open_reader(place)) as reader:
        for sample, picked in product(range(samples), PICKED if "T" in axes else [[0]]):
            lead = Lead(sample if "N" in axes else None, tuple(picked) if "T" in axes else None)
            chosen = by_step[sample, picked].reshape(-1, *whole.shape[1:])
            location = Location(place.path, place.dataset, axes=axes, lead=lead)
            laws.check_some_boxes(located(reader, location, owns=False), chosen)
            laws.check_channels(located(reader, location, owns=False), chosen)


def test_a_lead_reader_keeps_the_laws(laws: ModuleType, tmp_path: Path) -> None:
    """Steps that lie apart are one volume."""
    stored = laws.voxels(shape_of("NTCDHW"))
    place = write(tmp_path, "gzip", stored, "NTCDHW")
    location = Location(place.path, "x", axes="NTCDHW", lead=Lead(1, (0, 2, 3)))
    with closing(open_reader(location)) as reader:
        laws.check_reader(reader, np.ascontiguousarray(stored[1, [0, 2, 3]].reshape(-1, 4, 5, 7)))


def test_a_chunk_of_several_steps_is_decoded_once(laws: ModuleType, tmp_path: Path) -> None:
    """Neighbouring steps cost the chunks that hold them, and no more."""
    place = write(tmp_path, "gzip", laws.voxels(shape_of("TDHW")), "TDHW")
    with closing(open_reader(Location(place.path, "x", axes="TDHW", lead=Lead(None, (0, 1))))) as reader:
        assert reader.cost(reader.describe().whole).chunks == 2 * 3 * 2
    with closing(open_reader(Location(place.path, "x", axes="TDHW", lead=Lead(None, (1, 2, 3))))) as reader:
        assert reader.cost(reader.describe().whole).chunks == 2 * (2 * 3 * 2)


@pytest.mark.parametrize(
    ("lead", "error", "words"),
    [
        (Lead(), UsageError, "no index along N"),
        (Lead(0), UsageError, "no index along T"),
        (Lead(3, (0,)), DataError, "sample 3"),
        (Lead(0, (0, 5)), DataError, "time step 5"),
        (Lead(-1, (0,)), DataError, "sample -1"),
    ],
)
def test_indices_that_are_not_there_are_refused(
    laws: ModuleType, tmp_path: Path, lead: Lead, error: type[Exception], words: str
) -> None:
    """An index that the array does not have never becomes another one."""
    place = write(tmp_path, "npy", laws.voxels(shape_of("NTCDHW")), "NTCDHW")
    with pytest.raises(error, match=words):
        open_reader(Location(place.path, axes="NTCDHW", lead=lead))


@pytest.mark.parametrize("axes", ["DHW", "CDHW", "DHWC", "TCDHW", "NTDHW"])
@pytest.mark.parametrize("store", ["contiguous", "gzip"])
def test_stacked_datasets_keep_the_laws(laws: ModuleType, tmp_path: Path, store: str, axes: str) -> None:
    """The channels of several datasets stand one behind the other, in each time step."""
    parts = [laws.voxels(shape_of(axes), seed=seed) for seed in range(3)]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, part in zip("uvw", parts, strict=True):
            options: dict[str, Any] = {}
            if store == "gzip":
                options = {"chunks": shape_of(axes, CHUNKS), "compression": "gzip"}
            file.create_dataset(name, data=part, **options)
    volumes = [laws.to_volume(part, axes) for part in parts]
    steps = int(np.prod([EXTENTS[axis] for axis in "NT" if axis in axes]))
    by_step = [volume.reshape(steps, -1, *volume.shape[1:]) for volume in volumes]
    whole = np.ascontiguousarray(np.concatenate(by_step, axis=1).reshape(-1, *volumes[0].shape[1:]))
    path = str(tmp_path / "x.h5")
    first, *others = (Location(path, name, axes=axes) for name in "uvw")
    with closing(open_reader(Location(path, "u", axes=axes, also=tuple(others)))) as reader:
        laws.check_random_boxes(reader, whole)
        laws.check_channels(reader, whole)
        laws.check_refusals(reader)
        laws.check_threads(reader, whole)
        assert str(reader.describe().location) == f"{path}:u+v+w"
    assert first.also == ()


@pytest.mark.parametrize(
    ("other", "error"), [(np.zeros((4, 5, 6), "<i2"), DataError), (np.zeros((4, 5, 7), "<f4"), UsageError)]
)
def test_unequal_datasets_are_not_stacked(tmp_path: Path, other: npt.NDArray[Any], error: type[Exception]) -> None:
    """Shapes and types are compared when they are opened, and all files are closed."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["u"], file["v"] = np.zeros((4, 5, 7), "<i2"), other
    path = str(tmp_path / "x.h5")
    with pytest.raises(error, match=r"x\.h5:u\+v: v"):
        open_reader(Location(path, "u", also=(Location(path, "v"),)))


def test_every_order_of_five_axes(laws: ModuleType, tmp_path: Path) -> None:
    """Each of the 120 orders of TCDHW is transposed, never reshaped."""
    extents = {"T": 2, "C": 3, "D": 2, "H": 3, "W": 4}
    orders = ["".join(order) for order in permutations("TCDHW")]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for axes in orders:
            stored = laws.voxels(shape_of(axes, extents))
            file.create_dataset(axes, data=stored, chunks=tuple(min(2, extent) for extent in stored.shape))
    for axes in orders:
        whole = laws.to_volume(laws.voxels(shape_of(axes, extents)), axes)
        with closing(open_reader(Location(str(tmp_path / "x.h5"), axes, axes=axes))) as reader:
            assert laws.same_bits(laws.read(reader, reader.describe().whole), whole)
            box = Box((3, 1, 0, 2), (6, 2, 2, 4))
            out = np.empty(box.shape, whole.dtype)
            reader.read_into(box, out)
            assert laws.same_bits(out, whole[box.slices])
