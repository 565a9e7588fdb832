"""The Well: trajectories of simulations whose steps are samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest

from tests.laws.source import check_converts, check_source, coordinates
from voxload.convert import ConvertOptions, Packing
from voxload.convert.sources import Hints, Source
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.simulation.thewell import TheWell
from voxload.errors import DataError, NotFoundError, UsageError

SPACE = (4, 3, 5)
Array = npt.NDArray[Any]


def _stored(leading: tuple[int, ...], components: tuple[int, ...] = ()) -> Array:
    shape = (*leading, *SPACE, *components)
    return np.arange(np.prod(shape)).astype("<f4").reshape(shape)


def _field(file: h5py.File, name: str, values: Array, *, varying: tuple[bool, bool] = (True, True)) -> None:
    file[name] = values
    file[name].attrs["sample_varying"], file[name].attrs["time_varying"] = varying
    file[name].attrs["dim_varying"] = [True, True, True]


@pytest.fixture
def well(tmp_path: Path) -> Path:
    """Give a file as The Well's specification says: 2 trajectories, 3 steps, fields of every kind."""
    path = tmp_path / "mhd.hdf5"
    with h5py.File(path, "w") as file:
        file.attrs.update({"dataset_name": "mhd", "grid_type": "cartesian", "n_spatial_dims": 3, "n_trajectories": 2})
        file.attrs.update({"simulation_parameters": ["Ma", "Ms"], "Ma": 0.7, "Ms": 2.0})
        for axis, extent in zip("xyz", SPACE, strict=True):
            file[f"dimensions/{axis}"] = np.linspace(0, 1, extent)
        file["dimensions/time"] = np.array([0.0, 0.5, 1.0], "<f4")
        for axis in "xyz":
            file.create_group(f"boundary_conditions/{axis}_periodic").attrs["bc_type"] = "PERIODIC"
        _field(file, "t0_fields/density", _stored((2, 3)))
        _field(file, "t0_fields/mask", _stored((2,)), varying=(True, False))
        _field(file, "t0_fields/gravity", _stored(()), varying=(False, False))
        _field(file, "t1_fields/velocity", _stored((2, 3), (3,)))
        _field(file, "t2_fields/stress", _stored((2, 3), (3, 3)))
        file["t2_fields/stress"].attrs["symmetric"] = True
        for group in ("t0_fields", "t1_fields", "t2_fields"):
            file[group].attrs["field_names"] = list(file[group])
    return path


def _sources(path: Path, **hints: Any) -> dict[tuple[str, str], Source]:
    found = TheWell().sources(Probe(path), Hints(**hints))
    return {(source.describe().part, source.describe().dataset): source for source in found}


@pytest.mark.long
def test_no_axis_moves_in_the_well(well: Path) -> None:
    """Each step of each trajectory is a sample of every field; components are channels in the order of their bytes."""
    assert TheWell().claims(Probe(well))
    sources = _sources(well)
    assert len(sources) == 2 * 3 * 5
    volumes = {}
    for trajectory, step in np.ndindex(2, 3):
        part = f"{trajectory:04d}_{step:04d}"
        expected = {
            "density": _stored((2, 3))[trajectory, step][np.newaxis],
            "mask": _stored((2,))[trajectory][np.newaxis],
            "gravity": _stored(())[np.newaxis],
            "velocity": np.moveaxis(_stored((2, 3), (3,))[trajectory, step], -1, 0),
            "stress": np.moveaxis(_stored((2, 3), (3, 3))[trajectory, step].reshape(*SPACE, 9), -1, 0),
        }
        for name, volume in expected.items():
            if (trajectory, step) in ((0, 0), (1, 2)):
                check_source(sources[part, name], volume, seed=step)
            volumes[f"mhd_{part}", name] = volume
    check_converts(well, volumes, options=ConvertOptions(pack=Packing.ALWAYS))


def test_the_well_says_more(well: Path) -> None:
    """A sample knows its time, boundaries and parameters, and a tensor its symmetry."""
    attributes = _sources(well)["0001_0002", "stress"].describe().attributes
    assert attributes == {
        "symmetric": True,
        "dataset_name": "mhd",
        "grid_type": "cartesian",
        "simulation_parameters": {"Ma": 0.7, "Ms": 2.0},
        "boundary_conditions": {"x_periodic": "PERIODIC", "y_periodic": "PERIODIC", "z_periodic": "PERIODIC"},
        "time": 1.0,
    }


def test_constant_fields_alone_have_fewer_samples(well: Path) -> None:
    """Only axes along which a wanted field varies make samples."""
    assert list(_sources(well, datasets=("mask",))) == [("0000_0000", "mask"), ("0001_0000", "mask")]
    assert list(_sources(well, datasets=("t0_fields/gravity",))) == [("", "gravity")]
    with pytest.raises(NotFoundError, match=r"no dataset 'pressure'.*t0_fields/density"):
        _sources(well, datasets=("pressure",))


def test_a_tensor_of_one_axis_and_the_callers_axes(well: Path) -> None:
    """The nine components may be one axis, as the specification says; the caller's axes in space are taken."""
    with h5py.File(well, "a") as file:
        del file["t2_fields/stress"]
        _field(file, "t2_fields/stress", _stored((2, 3), (9,)))
    source = _sources(well, datasets=("stress",), axes="whd")["0000_0001", "stress"]
    check_source(source, _stored((2, 3), (9,))[0, 1].transpose(3, 2, 1, 0))
    with pytest.raises(UsageError, match="axes"):
        _sources(well, axes="CDHW")


def test_the_well_faults(well: Path) -> None:
    """Each contradiction between attributes and extents is refused, with the field's name."""

    def refused(match: str, error: type[Exception] = DataError) -> None:
        with pytest.raises(error, match=match):
            _sources(well)

    with h5py.File(well, "a") as file:
        file.attrs["n_spatial_dims"] = 2
    refused(r"mhd\.hdf5.*simulation of 2 dimensions", UsageError)
    with h5py.File(well, "a") as file:
        file.attrs["n_spatial_dims"] = 3
        file.attrs["n_trajectories"] = 4
    refused(r"trajectories .*'t0_fields/density': 2.*expected 4")
    with h5py.File(well, "a") as file:
        file.attrs["n_trajectories"] = 2
        file["t0_fields/mask"].attrs["time_varying"] = True
    refused(r"t0_fields/mask.*shape \(2, 4, 3, 5\).*2 axes for trajectories")
    with h5py.File(well, "a") as file:
        del file["t0_fields/mask"].attrs["time_varying"]
    refused("t0_fields/mask.*true or false")
    with h5py.File(well, "a") as file:
        file["t0_fields/mask"].attrs["time_varying"] = False
        file["t0_fields/mask"].attrs["dim_varying"] = [True, False, True]
    refused("constant along an axis.*--dataset", UsageError)
    with h5py.File(well, "a") as file:
        del file["t0_fields/mask"]
    refused("expected .*t0_fields/mask.* which it lists")
    with h5py.File(well, "a") as file:
        _field(file, "t0_fields/mask", _stored((2, 5)))
    refused("steps .*'t0_fields/mask': 5.*expected 3")


def test_a_step_that_was_never_written_is_refused(well: Path) -> None:
    """A simulation that stopped halfway leaves chunks that HDF5 would fill with zeros."""
    with h5py.File(well, "a") as file:
        del file["t0_fields/density"]
        density = file.create_dataset("t0_fields/density", (2, 3, *SPACE), "<f4", chunks=(1, 1, *SPACE))
        density[0, 0] = _stored(())
        density.attrs.update({"sample_varying": True, "time_varying": True})
    sources = _sources(well, datasets=("density",))
    check_source(sources["0000_0000", "density"], _stored(())[np.newaxis])
    with pytest.raises(DataError, match=r"chunk \(0, 1, 0, 0, 0\) never written"):
        check_source(sources["0000_0001", "density"], coordinates((1, *SPACE), "<f4"))


def test_other_hdf5_is_not_of_the_well(tmp_path: Path, well: Path) -> None:
    """The groups without the root's attributes are another layout."""
    with h5py.File(well, "a") as file:
        del file.attrs["n_trajectories"]
    assert not TheWell().claims(Probe(well))
    assert not TheWell().claims(Probe(tmp_path))
