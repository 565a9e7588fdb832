"""Data sets that are plain npy files with names: PyCOLA, Quijote, CAMELS."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.laws.source import Array, check_converts, check_source, coordinates
from voxload.convert import ConvertOptions, Packing
from voxload.convert.sources import Hints
from voxload.convert.sources.arrays.npy import Npy
from voxload.convert.sources.cosmology.grids import CamelsGrids, PyColaGrid, PyColaParticles, Quijote
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError, UsageError

FORMATS = (PyColaGrid(), PyColaParticles(), Quijote(), CamelsGrids())


def _claiming(path: Path) -> list[str]:
    return [known.name for known in FORMATS if known.claims(Probe(path))]


@pytest.mark.parametrize("piece", ["cube7", "full"])
def test_no_axis_moves_in_pycola_grids(tmp_path: Path, piece: str) -> None:
    """A histogram is a plain cube; its name says which piece of the box it is."""
    volume = coordinates((1, 6, 6, 6), "<f8")
    path = tmp_path / f"run_dim6_{piece}.npy"
    np.save(path, volume[0])
    assert _claiming(path) == ["PyCOLA grid"]
    (source,) = PyColaGrid().sources(Probe(path), Hints())
    assert source.describe().attributes == {"piece": piece}
    check_source(source, volume)
    check_converts(path, {(f"run_dim6_{piece}", "volume"): volume})


def test_no_axis_moves_in_pycola_sheets(tmp_path: Path) -> None:
    """A sheet is thinner than the box."""
    volume = coordinates((1, 2, 6, 5), "<f8")
    path = tmp_path / "run_dim6_sheet3.npy"
    np.save(path, volume[0])
    (source,) = PyColaGrid().sources(Probe(path), Hints())
    assert source.describe().attributes == {"piece": "sheet3"}
    check_source(source, volume)
    check_converts(path, {("run_dim6_sheet3", "volume"): volume})


def test_no_axis_moves_in_quijote_cubes(tmp_path: Path) -> None:
    """Cubes of a realisation are volumes of its folder's sample, each under its own name."""
    volumes: dict[tuple[str, str], Array] = {}
    folder = tmp_path / "latin_hypercube" / "12"
    folder.mkdir(parents=True)
    for name, more in (("df_m_6_PCS_z=0.5", {"redshift": 0.5, "assignment": "PCS"}), ("df_m_6_z=0", {"redshift": 0.0})):
        path, volume = folder / f"{name}.npy", coordinates((1, 6, 6, 6), "<f4") + np.float32(len(name))
        volumes["latin_hypercube_12", name] = volume
        np.save(path, volume[0])
        assert _claiming(path) == ["Quijote 3-D cube"]
        (source,) = Quijote().sources(Probe(path), Hints())
        cube = source.describe()
        assert (cube.sample, cube.dataset, cube.part) == (".", name, "")
        known = {"box_size": 1000.0, "box_size_units": "Mpc/h", "periodic": True}
        assert cube.attributes == {**known, **more, "cosmology": "latin_hypercube", "realisation": 12}
        check_source(source, volume)
    check_converts(tmp_path, volumes)


def test_no_axis_moves_in_camels_grids(tmp_path: Path) -> None:
    """Each simulation of a file is a sample of its own, numbered with zeros in front, and each field a volume of it."""
    every: dict[tuple[str, str], Array] = {}
    sample = "Nbody_SIMBA_LH_5_z=0.0"
    for field, redshift in (("Mcdm", "0.00"), ("T", "0.0")):
        path = tmp_path / f"Grids_{field}_Nbody_SIMBA_LH_5_z={redshift}.npy"
        volumes = coordinates((11, 5, 5, 5), "<f4") + np.float32(len(field))
        every |= {(f"{sample}_{number:02d}", field): volumes[number : number + 1] for number in range(11)}
        np.save(path, volumes)
        assert _claiming(path) == ["CAMELS 3-D grids"]
        sources = CamelsGrids().sources(Probe(path), Hints())
        cubes = [source.describe() for source in sources]
        assert [cube.part for cube in cubes] == [f"{number:02d}" for number in range(11)]
        assert {cube.sample for cube in cubes} == {sample}
        assert {cube.dataset for cube in cubes} == {field}
        expected = {"suite": "Nbody_SIMBA", "set": "LH", "redshift": 0.0, "periodic": True}
        assert all(cube.attributes == expected for cube in cubes)
        for number in (0, 1, 10):
            check_source(sources[number], volumes[number : number + 1])
    check_converts(tmp_path, every, options=ConvertOptions(pack=Packing.ALWAYS))


def test_camels_faults(tmp_path: Path) -> None:
    """A cut file, other extents and interleaved simulations are refused."""
    path = tmp_path / "Grids_T_SIMBA_1P_4_z=1.0.npy"
    np.save(path, np.zeros((3, 4, 4, 4), "f4"))
    os.truncate(path, path.stat().st_size - 4)
    with pytest.raises(DataError, match=r"found 892 bytes, expected 896 bytes for <f4 \(3, 4, 4, 4\)"):
        CamelsGrids().sources(Probe(path), Hints())
    np.save(path, np.asfortranarray(np.zeros((3, 4, 4, 4), "f4")))
    with pytest.raises(UsageError, match="Fortran order, whose simulations are interleaved"):
        CamelsGrids().sources(Probe(path), Hints())
    for shape in ((3, 4, 4, 5), (4, 4, 4)):
        np.save(path, np.zeros(shape))
        with pytest.raises(DataError, match=r"expected \(simulations, 4, 4, 4\), as the name says"):
            CamelsGrids().sources(Probe(path), Hints())


@pytest.mark.parametrize("name", ["df_m_8_CIC_z=0.npy", "a_dim8_full.npy", "a_dim8_cube0.npy"])
def test_extents_must_be_those_of_the_name(tmp_path: Path, name: str) -> None:
    """A name that says another extent than the header belongs to another file."""
    np.save(tmp_path / name, np.zeros((8, 8, 4)))
    (known,) = [known for known in FORMATS if known.claims(Probe(tmp_path / name))]
    with pytest.raises(DataError, match=r"found shape \(8, 8, 4\), expected 8 voxels a side, as the name says"):
        known.sources(Probe(tmp_path / name), Hints())
    np.save(tmp_path / name, np.zeros((8, 8, 8)))
    os.truncate(tmp_path / name, 1000)
    with pytest.raises(DataError, match="found 1000 bytes, expected 4224 bytes"):
        known.sources(Probe(tmp_path / name), Hints())


def test_particles_are_no_cube(tmp_path: Path) -> None:
    """Positions of particles are refused with the command that puts them on a grid."""
    np.savez(tmp_path / "ics_1.npz", px=np.zeros(9), py=np.zeros(9), pz=np.zeros(9))
    assert _claiming(tmp_path / "ics_1.npz") == ["PyCOLA particles"]
    with pytest.raises(UsageError, match=r"positions of particles px, py, pz.*voxload convert --grid 512 --assign cic"):
        PyColaParticles().sources(Probe(tmp_path / "ics_1.npz"), Hints())
    np.savez(tmp_path / "ics_2.npz", px=np.zeros((2, 2, 2)))
    assert not _claiming(tmp_path / "ics_2.npz")


def test_a_name_alone_is_no_format(tmp_path: Path) -> None:
    """Other content under these names is not claimed, and other names of npy files are plain ones."""
    for name in ("df_m_8_CIC_z=0.npy", "a_dim8_full.npy", "Grids_T_SIMBA_1P_4_z=1.0.npy", "ics_1.npz"):
        (tmp_path / name).write_bytes(b"no array")
        assert not _claiming(tmp_path / name)
    for name in ("df_m_x.npy", "dim8_full.npy", "Grids_T.npy", "df_m_8_XXX_z=0.npy"):
        np.save(tmp_path / name, np.zeros((8, 8, 8)))
        assert not _claiming(tmp_path / name)
        assert Npy().claims(Probe(tmp_path / name))
