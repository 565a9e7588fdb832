"""HDF5 files of any layout, and those that hold particles instead of cubes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.laws.source import check_converts, check_source, coordinates, read_box
from voxload.convert.sources import Hints, RawFormat, Source
from voxload.convert.sources.arrays.hdf5 import Hdf5
from voxload.convert.sources.arrays.hdf5cube import Hdf5Slab, check_slabs, describe_dataset
from voxload.convert.sources.cosmology.nyx import NyxHdf5
from voxload.convert.sources.cosmology.particles import GadgetHdf5
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.simulation.benchmarks import Dlio
from voxload.convert.sources.simulation.thewell import TheWell
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder


def _sources(path: Path, **hints: Any) -> dict[str, Source]:
    assert Hdf5().claims(Probe(path))
    return {source.describe().dataset: source for source in Hdf5().sources(Probe(path), Hints(**hints))}


@pytest.mark.parametrize(
    ("axes", "dtype", "storage"),
    [
        ("DHW", ">f8", {}),
        ("WHD", "<u2", {"chunks": (2, 2, 3), "shuffle": True, "compression": "gzip", "fletcher32": True}),
        ("CDHW", ">i2", {"chunks": (1, 2, 2, 2)}),
        ("DHWC", "<f4", {"compression": "lzf"}),
        ("HCWD", "u1", {}),
    ],
)
def test_no_axis_moves_in_hdf5(tmp_path: Path, axes: str, dtype: str, storage: dict[str, Any]) -> None:
    """A dataset of any axes, type and storage is a volume; its labels name the axes, or the caller does."""
    volume = coordinates((2 if "C" in axes else 1, 4, 5, 6), dtype)
    letters = "CDHW" if "C" in axes else "DHW"
    stored = volume.reshape(volume.shape[-len(axes) :]).transpose([letters.index(axis) for axis in axes])
    path = tmp_path / "any.h5"
    with h5py.File(path, "w") as file:
        item = file.create_dataset("group/density", data=stored, **storage)
        item.attrs["units"] = "g/cm3"
        for dimension, name in zip(item.dims, axes.lower(), strict=True):
            dimension.label = name
        chunks = item.chunks
    source = _sources(path)["density"]
    check_source(source, volume)
    cube = source.describe()
    assert (cube.order.axes, cube.attributes, cube.targets) == (axes, {"units": "g/cm3"}, {})
    assert cube.scratch_bytes == (2 * np.prod(chunks) * volume.itemsize if chunks else 0)
    if axes in ("WHD", "HCWD"):
        check_converts(path, {("any", "density"): volume})
    with h5py.File(path, "a") as file:
        for dimension in file["group/density"].dims:
            dimension.label = ""
    check_source(_sources(path, axes=axes.lower())["density"], volume)


def test_a_voxload_file_converts_again(tmp_path: Path) -> None:
    """What voxload wrote, with its manifest, labels and targets, is a raw cube as well."""
    volume = coordinates((2, 3, 4, 5), "<i2")
    with h5py.File(tmp_path / "v.h5", "w") as file:
        item = file.create_dataset("full", data=volume, chunks=(2, 3, 4, 5), fletcher32=True)
        for dimension, name in zip(item.dims, "cdhw", strict=True):
            dimension.label = name
        file["targets"] = np.array([0.1, 2.0])
        file["targets"].attrs["names"] = ["omega_m", "h_0"]
        file.attrs["voxload"] = json.dumps({"version": 1})
    (source,) = _sources(tmp_path / "v.h5").values()
    check_source(source, volume)
    assert source.describe().targets == {"omega_m": 0.1, "h_0": 2.0}


def test_several_datasets_are_volumes_of_one_sample(tmp_path: Path) -> None:
    """Fields and masks of one extent belong together; the caller's axes are those of the volumes with as many."""
    volume = coordinates((2, 3, 4, 5))
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["field"], file["mask"], file["unitPar"] = volume, volume[0] > 7, [1.5, 2.5]
        file["text"], file["plane"] = np.full((2, 2, 2), b"a"), np.zeros((2, 2))
    sources = _sources(tmp_path / "m.h5", axes="CDHW")
    check_source(sources["field"], volume)
    check_source(sources["mask"], volume[:1] > 7)
    assert list(sources) == ["field", "mask"]
    assert {source.describe().sample for source in sources.values()} == {""}
    assert sources["mask"].describe().targets == {"target_0": 1.5, "target_1": 2.5}
    with pytest.raises(UsageError, match=r"'field'.*four axes without names, shape \(2, 3, 4, 5\).*--axes CDHW"):
        _sources(tmp_path / "m.h5")
    with pytest.raises(UsageError, match="3 axes for axes='CDHW'"):
        _sources(tmp_path / "m.h5", axes="CDHW", datasets=("mask",))
    with pytest.raises(UsageError, match="permutation"):
        _sources(tmp_path / "m.h5", axes="XYZ", datasets=("mask",))


def test_different_extents_need_a_choice(tmp_path: Path) -> None:
    """Volumes of different extents are no one sample: the caller says which are wanted."""
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["fine"], file["coarse/a"] = np.zeros((4, 4, 4)), np.ones((2, 2, 2))
    with pytest.raises(UsageError, match=r"m\.h5.*a \(2, 2, 2\), fine \(4, 4, 4\).*--dataset"):
        _sources(tmp_path / "m.h5")
    assert list(_sources(tmp_path / "m.h5", datasets=("coarse/a",))) == ["a"]
    with pytest.raises(NotFoundError, match="no dataset 'b'"):
        _sources(tmp_path / "m.h5", datasets=("fine", "b"))


def test_a_file_without_volumes_lists_what_it_holds(tmp_path: Path) -> None:
    """The message names what there is, ten of it."""
    with h5py.File(tmp_path / "m.h5", "w") as file:
        for number in range(12):
            file[f"v{number:02d}"] = np.zeros(3)
    with pytest.raises(DataError, match=r"m\.h5.*'v00 float64 \(3,\)'.*v09.* and 2 more, expected a dataset of three"):
        _sources(tmp_path / "m.h5")


def test_values_that_hdf5_would_fill_are_refused(tmp_path: Path) -> None:
    """Chunks never written, virtual datasets without sources and links to other files give no voxels."""
    path, other = tmp_path / "m.h5", tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (4, 4, 4), "<f4", chunks=(2, 4, 4))[:2] = 1
    with pytest.raises(DataError, match=r"m\.h5:a.*chunk \(1, 0, 0\) never written"):
        read_box(_sources(path)["a"], Box.whole((4, 4, 4)))
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((4, 4, 4), "<f4")
        layout[:] = h5py.VirtualSource(str(other), "a", (4, 4, 4))
        file.create_virtual_dataset("a", layout)
        parts = h5py.VirtualLayout((2, 4, 4, 4), "<f4")
        parts[:] = h5py.VirtualSource(str(other), "b", (2, 4, 4, 4))
        file.create_virtual_dataset("b", parts)
    with pytest.raises(DataError, match=r"other\.h5"):
        _sources(path, datasets=("a",))
    with pytest.raises(UsageError, match=r"m\.h5:b.*virtual storage"):
        check_slabs(path, "b")


def test_a_broken_file_is_no_foreign_one(tmp_path: Path) -> None:
    """A cut file is damaged; bytes without a signature are no HDF5."""
    path = tmp_path / "m.h5"
    with h5py.File(path, "w") as file:
        file["a"] = np.ones((9, 9, 9))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"m\.h5.*truncated"):
        Hdf5().sources(Probe(path), Hints())
    path.write_bytes(b"x" * 5000)
    assert not Hdf5().claims(Probe(path))
    with pytest.raises(DataError, match="no HDF5 signature"):
        Hdf5().sources(Probe(path), Hints())


@pytest.mark.parametrize("chunks", [None, (3, 2, 2, 2, 2, 2)])
def test_any_axis_of_a_dataset_may_be_fixed(tmp_path: Path, chunks: tuple[int, ...] | None) -> None:
    """A cube may be what is left of six axes when one in the middle and the last but two have an index."""
    stored = np.arange(3 * 2 * 4 * 2 * 5 * 3).astype(">i4").reshape(3, 2, 4, 2, 5, 3)
    path = tmp_path / "six.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=stored, chunks=chunks)
    item = Probe(path).hdf5
    assert item is not None
    cube = describe_dataset(path, "x", item.datasets["x"], order=AxisOrder("WDHC"), fixed=(1, 3))
    source = Hdf5Slab("x", cube, {1: 1, 3: 0})
    check_source(source, stored[:, 1, :, 0].transpose(3, 1, 2, 0))


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    """A file written to after it was opened is refused, and so is one whose dataset is gone."""
    path = tmp_path / "m.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.ones((2, 3, 3, 3))
    item = Probe(path).hdf5
    assert item is not None
    cube = describe_dataset(path, "x", item.datasets["x"], order=AxisOrder("DHW"), fixed=(0,))
    source = Hdf5Slab("x", cube, {0: 1})
    with source.open() as read_into:
        path.write_bytes(path.read_bytes() + b"more")
        with pytest.raises(DataError, match=r"m\.h5"):
            read_into(Box.whole((3, 3, 3)), np.empty((1, 3, 3, 3)))
    with h5py.File(path, "w") as file:
        file["y"] = 1
    with pytest.raises(NotFoundError, match="no such dataset"), source.open():
        pass


def test_one_format_knows_each_layout(tmp_path: Path) -> None:
    """Files of the layouts that this family knows are of one of them each, and HDF5 of any layout besides."""
    known: tuple[RawFormat, ...] = (NyxHdf5(), TheWell(), Dlio(), GadgetHdf5())
    cubes = np.zeros((2, 3, 3, 3), "<f4")
    files: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "Nyx HDF5 (gimlet)": ({"format": "nyx-lyaf"}, {"native_fields/density": cubes[0]}),
        "The Well": ({"n_spatial_dims": 3, "n_trajectories": 1}, {"t0_fields/density": cubes}),
        "DLIO synthetic HDF5": ({}, {"records_0": cubes, "labels": [0, 0]}),
        "": ({"n_spatial_dims": 3}, {"records_0": cubes, "t0_fields/density": cubes, "PartType1/Coordinates": cubes}),
    }
    for name, (attributes, datasets) in files.items():
        path = tmp_path / f"{name.split()[0] if name else 'other'}.h5"
        with h5py.File(path, "w") as file:
            file.attrs.update(attributes)
            for dataset, values in datasets.items():
                file[dataset] = values
        assert [one.name for one in known if one.claims(Probe(path))] == ([name] if name else [])
        assert Hdf5().claims(Probe(path))


def test_particles_are_no_cube(tmp_path: Path) -> None:
    """A snapshot of Gadget is known, and refused with what makes a cube of it; its lookalikes are other files."""
    path = tmp_path / "snap_000.hdf5"
    with h5py.File(path, "w") as file:
        file.create_group("Header").attrs["NumPart_ThisFile"] = [0, 8, 0, 0, 0, 0]
        file["PartType1/Coordinates"] = np.zeros((8, 3))
    assert GadgetHdf5().claims(Probe(path))
    with pytest.raises(UsageError, match=r"snap_000\.hdf5.*particles.*--grid 512 --assign cic"):
        GadgetHdf5().sources(Probe(path), Hints())
    with h5py.File(path, "a") as file:
        del file["Header"].attrs["NumPart_ThisFile"]
    assert not GadgetHdf5().claims(Probe(path))
    with h5py.File(path, "a") as file:
        file["Header"].attrs["NumPart_Total"] = [0, 8, 0, 0, 0, 0]
        file.move("PartType1/Coordinates", "Group/Coordinates")
    assert not GadgetHdf5().claims(Probe(path))
