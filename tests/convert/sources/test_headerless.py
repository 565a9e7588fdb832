"""Headerless files that names and sizes identify: NoPFS, Nyx at NERSC, SDRBench."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.laws.source import check_converts, check_source, coordinates
from voxload.convert.sources import Headerless, Hints, MemoryOrder
from voxload.convert.sources.cosmology.nyx import NyxRaw
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.records.cosmoflow import NopfsRaw
from voxload.convert.sources.simulation.benchmarks import SdrBench
from voxload.errors import DataError, UsageError

FORMATS = (NopfsRaw(), NyxRaw(), SdrBench())


def _claiming(path: Path) -> list[str]:
    return [known.name for known in FORMATS if known.claims(Probe(path))]


def _write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def test_no_axis_moves_in_nopfs_samples(tmp_path: Path) -> None:
    """Four targets, then a cube with redshift first."""
    volume = coordinates((4, 6, 6, 6), "<i2")
    path = _write(tmp_path / "u_000.bin", struct.pack("<4f", 0.5, -0.25, 0, -1) + volume.tobytes())
    assert _claiming(path) == ["NoPFS raw binary"]
    (source,) = NopfsRaw().sources(Probe(path), Hints())
    targets = source.describe().targets
    assert targets == {"omega_m": 0.5, "sigma_8": -0.25, "n_spec": 0.0, "h_0": -1.0}
    assert source.describe().order.axes == "CDHW"
    check_source(source, volume)
    check_converts(path, {("u_000", "volume"): volume}, targets={"u_000": targets})


def test_nopfs_size_and_labels_decide(tmp_path: Path) -> None:
    """A byte more or less, labels that are no numbers or small integers, or another name: no sample of NoPFS."""
    good = struct.pack("<4f", 0.5, -0.25, 0, -1) + bytes(8 * 27)
    for name, content in (
        ("u.bin", good[:-1]),
        ("u.bin", good + b"\0"),
        ("u.bin", struct.pack("<4f", float("nan"), 0, 0, 0) + good[16:]),
        ("u.bin", struct.pack("<4i", 28, 3, 3, 3) + good[16:]),
        ("u.bin", b""),
        ("u.dat", good),
        ("u.bin", b"\x93NUMPY\x01\0" + good[8:]),
    ):
        assert not _claiming(_write(tmp_path / name, content))


@pytest.mark.parametrize(("precision", "dtype"), [("f4", "<f4"), ("DP", "<f8"), ("float32", "<f4"), ("64", "<f8")])
def test_no_axis_moves_in_nyx_snapshots(tmp_path: Path, precision: str, dtype: str) -> None:
    """The first index runs fastest, as Fortran writes; fields of one redshift are volumes of one sample."""
    volume = coordinates((1, 6, 6, 6), dtype)
    path = _write(tmp_path / "6" / f"z2.50_dark_matter_density_{precision}.raw", volume[0].tobytes("F"))
    assert _claiming(path) == ["Nyx raw"]
    (source,) = NyxRaw().sources(Probe(path), Hints())
    cube = source.describe()
    assert (cube.dataset, cube.sample) == ("dark_matter_density", "z2.50")
    assert cube.attributes == {"redshift": 2.5}
    check_source(source, volume)
    _write(tmp_path / "6" / f"z2.50_temperature_{precision}.raw", (volume[0] + 1).tobytes("F"))
    volumes = {"dark_matter_density": volume, "temperature": volume + 1}
    check_converts(tmp_path, {("6_z2.50", name): field for name, field in volumes.items()})


def test_nyx_faults(tmp_path: Path) -> None:
    """A size that is not the folder's, a type that is not the name's and an unknown word are refused."""
    path = _write(tmp_path / "6" / "z3_temperature_single.raw", bytes(4 * 6**3 - 4))
    assert _claiming(path) == ["Nyx raw"]
    with pytest.raises(DataError, match="found 860 bytes of <f4, expected 6 voxels a side, as the folder says"):
        NyxRaw().sources(Probe(path), Hints())
    path = _write(tmp_path / "6" / "z3_temperature_single.raw", bytes(4 * 5**3))
    with pytest.raises(DataError, match="6 voxels a side"):
        NyxRaw().sources(Probe(path), Hints())
    path = _write(tmp_path / "any" / "z3_temperature_single.raw", bytes(8 * 5**3))
    with pytest.raises(DataError, match="those of a cube"):
        NyxRaw().sources(Probe(path), Hints())
    path = _write(tmp_path / "6" / "z3_temperature_half.raw", bytes(4 * 6**3))
    with pytest.raises(UsageError, match=r"precision 'half', expected one of f4, .*--shape"):
        NyxRaw().sources(Probe(path), Hints())
    for name in ("z3_temperature_single.raw", "temperature.raw", "z3_f4.raw"):
        assert not _claiming(_write(tmp_path / "any" / name, bytes(7)))


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    ("folder", "name", "dtype"),
    [
        ("6x6x6", "velocity_x.f32", "<f4"),
        ("SDRBENCH-EXASKY-NYX-6x6x6", "velocity_x.f32", "<f4"),
        ("any", "velocity_x_6_6_6.d64", "<f8"),
        ("6x6x6", "velocity_x-6x6x6.f64", "<f8"),
    ],
)
def test_no_axis_moves_in_sdrbench_fields(tmp_path: Path, *, folder: str, name: str, dtype: str) -> None:
    """Type and extents come from the names; all fields of a folder are volumes of one sample."""
    volume = coordinates((1, 6, 6, 6), dtype)
    path = _write(tmp_path / folder / name, volume.tobytes())
    assert _claiming(path) == ["SDRBench"]
    (source,) = SdrBench().sources(Probe(path), Hints())
    assert (source.describe().dataset, source.describe().sample) == ("velocity_x", ".")
    check_source(source, volume)
    _write(path.with_name(name.replace("_x", "_y")), (volume + 1).tobytes())
    volumes = {(folder, "velocity_x"): volume, (folder, "velocity_y"): volume + 1}
    check_converts(tmp_path, volumes)
    check_converts(path.parent, volumes)


def test_unequal_extents_need_the_callers_word(tmp_path: Path) -> None:
    """SDRBench writes extents in either order, so that only a cube speaks for itself."""
    volume = coordinates((1, 4, 5, 6), "<f8")
    path = _write(tmp_path / "4x5x6" / "density.d64", volume.tobytes())
    assert _claiming(path) == ["SDRBench"]
    with pytest.raises(UsageError, match=r"extents \(4, 5, 6\), of which nothing says .*--dtype '<f8' and --shape"):
        SdrBench().sources(Probe(path), Hints())
    (source,) = SdrBench().sources(Probe(path), Hints(headerless=Headerless((4, 5, 6), "<f8")))
    assert (source.describe().dataset, source.describe().sample) == ("density", ".")
    check_source(source, volume)
    said = Headerless((6, 5, 4), "<f8", MemoryOrder.F)
    (source,) = SdrBench().sources(Probe(path), Hints(headerless=said, axes="WHD"))
    check_source(source, volume)
    with pytest.raises(UsageError, match="four axes"):
        SdrBench().sources(Probe(path), Hints(headerless=Headerless((2, 2, 5, 6), "<f8")))


def test_sdrbench_faults(tmp_path: Path) -> None:
    """A size or a folder that does not fit the name is refused; a file with a signature, or no extents, is another."""
    path = _write(tmp_path / "6x6x6" / "t.f32", bytes(4 * 6**3 - 4))
    with pytest.raises(DataError, match="found 860 bytes, expected 864 bytes"):
        SdrBench().sources(Probe(path), Hints())
    path = _write(tmp_path / "6x6x6" / "t_5_5_5.f32", bytes(4 * 5**3))
    with pytest.raises(UsageError, match=r"\(5, 5, 5\) in the name and \(6, 6, 6\) in the folder"):
        SdrBench().sources(Probe(path), Hints())
    np.save(tmp_path / "6x6x6" / "cube.npy", np.zeros((6, 6, 6)))
    (tmp_path / "6x6x6" / "cube.npy").rename(tmp_path / "6x6x6" / "cube.f32")
    assert not _claiming(tmp_path / "6x6x6" / "cube.f32")
    assert not _claiming(_write(tmp_path / "any" / "t.f32", bytes(864)))
    assert not _claiming(_write(tmp_path / "6x6x6" / "t.dat", bytes(864)))
