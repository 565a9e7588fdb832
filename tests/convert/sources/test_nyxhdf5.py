"""Nyx and gimlet HDF5: fields of a simulation for the Lyman-alpha forest."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.laws.source import check_converts, check_source, coordinates
from voxload.convert.sources import Hints
from voxload.convert.sources.cosmology.nyx import NyxHdf5
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError, NotFoundError, UsageError

SHAPE = (3, 5, 4)
FIELDS = {
    "native_fields/baryon_density": "(mean)",
    "native_fields/velocity_x": "km/s",
    "derived_fields/tau_red": "(none)",
}


def _write(path: Path, fields: dict[str, str], *, shape: tuple[int, int, int] = SHAPE) -> Path:
    """Write what the Nyx converter writes: attributes of fixed-length text, and a field a dataset."""
    with h5py.File(path, "w") as file:
        file.attrs["format"] = np.bytes_(b"nyx-lyaf")
        domain, universe = file.create_group("domain"), file.create_group("universe")
        domain.attrs["size"] = [20.0, 20.0, 20.0]
        domain.attrs["shape"] = np.array(shape, "<i4")
        for name, value in {
            "hubble": 0.675,
            "omega_b": 0.0487,
            "omega_m": 0.31,
            "omega_l": 0.69,
            "redshift": 2.5,
        }.items():
            universe.attrs[name] = value
        for name, units in fields.items():
            file[name] = coordinates((1, *shape), "<f4")[0] + len(name)
            file[name].attrs["units"] = np.bytes_(units.encode())
    return path


def test_no_axis_moves_in_a_nyx_field(tmp_path: Path) -> None:
    """Every field is a volume of one sample, (x, y, z) is (D, H, W), and knows its units, box and cosmology."""
    path = _write(tmp_path / "z2.hdf5", FIELDS)
    assert NyxHdf5().claims(Probe(path))
    sources = {source.describe().dataset: source for source in NyxHdf5().sources(Probe(path), Hints())}
    assert list(sources) == ["tau_red", "baryon_density", "velocity_x"]
    for name, units in FIELDS.items():
        source = sources[name.split("/")[1]]
        check_source(source, coordinates((1, *SHAPE), "<f4") + len(name))
        cube = source.describe()
        assert (cube.sample, cube.part, cube.targets) == ("", "", {})
        assert cube.attributes == {
            "units": units,
            "box_size": [20.0, 20.0, 20.0],
            "box_size_units": "Mpc/h",
            "redshift": 2.5,
            "hubble": 0.675,
            "omega_b": 0.0487,
            "omega_m": 0.31,
            "omega_l": 0.69,
        }
    volumes = {("z2", name.split("/")[1]): coordinates((1, *SHAPE), "<f4") + len(name) for name in FIELDS}
    check_converts(path, volumes)


def test_the_caller_chooses_fields(tmp_path: Path) -> None:
    """Fields are named with or without their group; others are left out, and a wrong name lists what there is."""
    path = _write(tmp_path / "z2.hdf5", FIELDS)
    hints = Hints(datasets=("velocity_x", "derived_fields/tau_red"))
    assert [source.describe().dataset for source in NyxHdf5().sources(Probe(path), hints)] == ["tau_red", "velocity_x"]
    with pytest.raises(NotFoundError, match=r"no dataset 'gas'.*baryon_density.*--dataset"):
        NyxHdf5().sources(Probe(path), Hints(datasets=("gas",)))
    (source,) = NyxHdf5().sources(Probe(path), Hints(datasets=("tau_red",), axes="WHD"))
    turned = coordinates((1, *SHAPE), "<f4")[0].transpose() + len("derived_fields/tau_red")
    check_source(source, turned[np.newaxis])


def test_fields_of_one_name_keep_their_groups(tmp_path: Path) -> None:
    """Two fields of one name are two volumes."""
    path = _write(tmp_path / "n.h5", {"native_fields/density": "g", "derived_fields/density": "g"})
    names = [source.describe().dataset for source in NyxHdf5().sources(Probe(path), Hints())]
    assert names == ["derived_fields_density", "native_fields_density"]


def test_nyx_faults(tmp_path: Path) -> None:
    """A file without fields, fields of different extents, and fields never written are refused."""
    path = _write(tmp_path / "n.h5", {})
    with h5py.File(path, "a") as file:
        file["chunk_complete"] = np.zeros((2, 2, 2))
    with pytest.raises(DataError, match=r"n\.h5.*chunk_complete.*native_fields or derived_fields"):
        NyxHdf5().sources(Probe(path), Hints())
    with h5py.File(path, "a") as file:
        file["native_fields/a"] = np.zeros((2, 2, 2))
        file["native_fields/b"] = np.zeros((2, 2, 3))
    with pytest.raises(UsageError, match=r"a \(2, 2, 2\), b \(2, 2, 3\).*--dataset"):
        NyxHdf5().sources(Probe(path), Hints())
    with h5py.File(path, "a") as file:
        file.create_dataset("native_fields/c", (2, 2, 2), "<f4")
    (source,) = NyxHdf5().sources(Probe(path), Hints(datasets=("c",)))
    with pytest.raises(DataError, match="no value ever written"):
        check_source(source, np.zeros((1, 2, 2, 2), "<f4"))


def test_other_hdf5_is_not_nyx(tmp_path: Path) -> None:
    """The same groups without the mark, or another mark, are no Nyx file."""
    path = _write(tmp_path / "n.h5", FIELDS)
    with h5py.File(path, "a") as file:
        file.attrs["format"] = "something else"
    assert not NyxHdf5().claims(Probe(path))
    with h5py.File(path, "a") as file:
        del file.attrs["format"]
    assert not NyxHdf5().claims(Probe(path))
    assert not NyxHdf5().claims(Probe(tmp_path))
