"""The CosmoFlow universes in HDF5, raw and as four tools split them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest

from tests.laws.source import check_converts, check_source, coordinates, read_box
from voxload.convert.sources import Hints, RawFormat
from voxload.convert.sources.arrays.hdf5 import Hdf5
from voxload.convert.sources.cosmology.cosmoflow import CosmoUniverse, LbannSplit, MlperfSplit, MultiScale, NopfsSplit
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box

Array = npt.NDArray[Any]

FORMATS: tuple[RawFormat, ...] = (CosmoUniverse(), MlperfSplit(), NopfsSplit(), LbannSplit(), MultiScale())
PARAMETERS = np.array([0.25, -0.5, 0.125, -1], "<f4")
TARGETS = {"omega_m": 0.25, "sigma_8": -0.5, "n_spec": 0.125, "h_0": -1.0}


def _write(path: Path, **datasets: Array) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file[name] = values
    return path


def _claiming(path: Path) -> list[str]:
    return [known.name for known in FORMATS if known.claims(Probe(path))]


def _universe(extent: int = 6, dtype: str = "<i2") -> tuple[Array, Array]:
    """Return a (C, D, H, W) volume, and the same as a raw universe (D, H, W, C)."""
    volume = coordinates((4, extent, extent, extent), dtype)
    return volume, np.ascontiguousarray(volume.transpose(1, 2, 3, 0))


def test_no_axis_moves_in_an_mlperf_split(tmp_path: Path) -> None:
    """A cube of MLPerf's script has redshift last, compressed or not, and its four parameters."""
    volume, raw = _universe()
    path = tmp_path / "a_000.hdf5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=raw, compression="gzip")
        file.create_dataset("y", data=PARAMETERS, compression="gzip")
    (source,) = MlperfSplit().sources(Probe(path), Hints())
    check_source(source, volume)
    cube = source.describe()
    assert (cube.dataset, cube.order.axes, cube.targets, cube.part) == ("x", "DHWC", TARGETS, "")
    check_converts(path, {("a_000", "x"): volume}, targets={"a_000": TARGETS})
    with h5py.File(path, "r") as file:
        assert cube.scratch_bytes == 2 * np.prod(file["x"].chunks) * 2


@pytest.mark.parametrize("is_transposed", [True, False])
def test_no_axis_moves_in_a_nopfs_split(tmp_path: Path, *, is_transposed: bool) -> None:
    """A cube of NoPFS's script is the same with its redshifts moved to the front, and without."""
    volume, raw = _universe()
    stored = raw.transpose(3, 0, 1, 2) if is_transposed else raw
    path = _write(tmp_path / "s.hdf5", split=stored, unitPar=PARAMETERS)
    (source,) = NopfsSplit().sources(Probe(path), Hints())
    check_source(source, volume)
    cube = source.describe()
    assert (cube.dataset, cube.order.axes, cube.targets) == ("split", "CDHW" if is_transposed else "DHWC", TARGETS)
    assert cube.scratch_bytes == 0
    check_converts(path, {("s", "split"): volume}, targets={"s": TARGETS})


@pytest.mark.parametrize("dtype", ["<i2", "<f4"])
def test_no_axis_moves_in_an_lbann_split(tmp_path: Path, dtype: str) -> None:
    """A cube of LBANN's script, whose axes numpy's transpose turned round, is the cube of the raw universe."""
    volume, raw = _universe(dtype=dtype)
    path = _write(tmp_path / "u_0_0_0.hdf5", full=raw.transpose(), unitPar=PARAMETERS)
    (source,) = LbannSplit().sources(Probe(path), Hints())
    check_source(source, volume)
    assert source.describe().order.axes == "CWHD"
    assert source.describe().targets == TARGETS
    check_converts(path, {("u_0_0_0", "full"): volume}, targets={"u_0_0_0": TARGETS})
    (universe,) = CosmoUniverse().sources(Probe(_write(tmp_path / "u.hdf5", full=raw, unitPar=PARAMETERS)), Hints())
    check_source(universe, volume)


@pytest.mark.parametrize("chunks", [None, (2, 3, 2, 4, 3)])
def test_no_axis_moves_in_multiscale_files(tmp_path: Path, chunks: tuple[int, ...] | None) -> None:
    """Every sample of a file is a cube of unequal extents with its own row of parameters; chunks may hold several."""
    volumes = coordinates((3 * 2, 4, 5, 6), "<u2").reshape(3, 2, 4, 5, 6)
    rows = np.arange(12, dtype="<f4").reshape(3, 4)
    path = tmp_path / "PeterA_2019_05_4parE-rec7.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("3Dmap", data=volumes.transpose(0, 2, 3, 4, 1), chunks=None if chunks is None else True)
        file["unitPar"] = rows
    sources = MultiScale().sources(Probe(path), Hints())
    for number, source in enumerate(sources):
        check_source(source, volumes[number], seed=number)
        cube = source.describe()
        assert (cube.dataset, cube.order.axes, cube.part) == ("3Dmap", "DHWC", f"{number:04d}")
        assert cube.targets == dict(zip(TARGETS, rows[number].tolist(), strict=True))
        assert (cube.scratch_bytes > 0) == (chunks is not None)
    assert len(sources) == 3
    ids = [f"PeterA_2019_05_4parE-rec7_{number:04d}" for number in range(3)]
    check_converts(
        path,
        {(sample, "3Dmap"): volume for sample, volume in zip(ids, volumes, strict=True)},
        targets={sample: dict(zip(TARGETS, row, strict=True)) for sample, row in zip(ids, rows.tolist(), strict=True)},
    )


def test_each_layout_is_told_from_the_others(tmp_path: Path) -> None:
    """One format knows each layout, by names and extents; less than all of MLPerf's is no sign of it."""
    _, raw = _universe()
    first, many = raw.transpose(), np.zeros((2, 3, 3, 3, 4), "<u2")
    cases = {
        "ExaLearn cosmoUniverse": {"full": raw, "unitPar": PARAMETERS},
        "MLPerf CosmoFlow split HDF5": {"x": raw, "y": PARAMETERS},
        "NoPFS split HDF5": {"split": first, "unitPar": PARAMETERS},
        "LBANN split HDF5": {"full": first, "unitPar": PARAMETERS},
        "multiScale_tryG": {"3Dmap": many, "unitPar": np.zeros((2, 4))},
    }
    for number, (name, datasets) in enumerate(cases.items()):
        path = _write(tmp_path / f"{number}.h5", **datasets)
        assert _claiming(path) == [name]
        assert Hdf5().claims(Probe(path))
    strangers = [
        {"x": raw.astype("<f4"), "y": PARAMETERS},
        {"x": raw, "y": PARAMETERS[:3]},
        {"x": raw, "y": PARAMETERS, "z": PARAMETERS},
        {"x": raw[:5], "y": PARAMETERS},
        {"split": raw[..., 0], "unitPar": PARAMETERS},
        {"full": raw},
        {"3Dmap": many[0], "unitPar": PARAMETERS},
    ]
    for number, datasets in enumerate(strangers):
        assert _claiming(_write(tmp_path / f"stranger{number}.h5", **datasets)) == []
    (tmp_path / "text.h5").write_text("no HDF5")
    assert _claiming(tmp_path / "text.h5") == []
    assert _claiming(tmp_path) == []


@pytest.mark.parametrize(("name", "known"), [("full", CosmoUniverse()), ("split", NopfsSplit())])
def test_extents_that_decide_nothing_are_refused(tmp_path: Path, name: str, known: RawFormat) -> None:
    """Four equal extents do not say which axis is redshift; the caller's word is taken."""
    volume, raw = _universe(4)
    path = _write(tmp_path / "u.h5", **{name: raw, "unitPar": PARAMETERS})
    assert _claiming(path) == [known.name]
    with pytest.raises(UsageError, match=r"u\.h5.*found shape \(4, 4, 4, 4\).*--axes CDHW"):
        known.sources(Probe(path), Hints())
    (source,) = known.sources(Probe(path), Hints(axes="DHWC"))
    check_source(source, volume)


@pytest.mark.parametrize(("name", "known"), [("full", LbannSplit()), ("split", NopfsSplit()), ("x", MlperfSplit())])
def test_the_callers_axes_win(tmp_path: Path, name: str, known: RawFormat) -> None:
    """Axes that the caller names count more than the layout's."""
    stored = coordinates((4, 5, 5, 5), "<i2")
    other = "y" if name == "x" else "unitPar"
    if name == "x":
        stored = coordinates((5, 5, 5, 4), "<i2")
    path = _write(tmp_path / "u.h5", **{name: stored, other: PARAMETERS})
    axes = "CDWH" if name != "x" else "HDWC"
    (source,) = known.sources(Probe(path), Hints(axes=axes))
    check_source(source, stored.transpose(["CDWH".index(a) for a in "CDHW"] if name != "x" else (3, 1, 0, 2)))
    with pytest.raises(UsageError, match="axes"):
        known.sources(Probe(path), Hints(axes="DHW"))
    with pytest.raises(NotFoundError, match="no dataset 'other'"):
        known.sources(Probe(path), Hints(datasets=("other",)))


def test_cubes_and_rows_must_agree(tmp_path: Path) -> None:
    """A sample without parameters, or parameters without a sample, is a broken file."""
    path = _write(tmp_path / "m.h5", **{"3Dmap": np.zeros((3, 2, 2, 2, 1), "<u2"), "unitPar": np.zeros((2, 4))})
    with pytest.raises(DataError, match=r"m\.h5.*found 3 cubes, expected 2"):
        MultiScale().sources(Probe(path), Hints())


def test_a_sample_that_was_never_written_is_refused(tmp_path: Path) -> None:
    """Chunks that HDF5 would fill with zeros are no data; the samples that were written can be read."""
    path = tmp_path / "m.h5"
    with h5py.File(path, "w") as file:
        maps = file.create_dataset("3Dmap", (3, 4, 4, 4, 2), "<u2", chunks=(1, 4, 4, 4, 2))
        maps[0] = 7
        maps[2] = 9
        file["unitPar"] = np.zeros((3, 4))
    first, second, third = MultiScale().sources(Probe(path), Hints())
    whole = Box.whole((4, 4, 4))
    assert (read_box(first, whole) == 7).all()
    assert (read_box(third, whole) == 9).all()
    with pytest.raises(DataError, match=r"m\.h5:3Dmap.*chunk \(1, 0, 0, 0, 0\) never written"):
        read_box(second, whole)
    with h5py.File(path, "a") as file:
        del file["unitPar"]
        file.create_dataset("unitPar", (3, 4), "<f4")
    with pytest.raises(DataError, match=r"'unitPar'.*no value ever written"):
        MultiScale().sources(Probe(path), Hints())


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    """A chunk whose checksum fails stops the reading, and the message says which it is."""
    path = tmp_path / "m.h5"
    with h5py.File(path, "w") as file:
        maps = file.create_dataset("3Dmap", (2, 4, 4, 4, 1), "<u2", chunks=(1, 4, 4, 4, 1), fletcher32=True)
        maps[...] = coordinates((2, 4, 4, 4), "<u2")[..., np.newaxis]
        file["unitPar"] = np.zeros((2, 4))
        place = maps.id.get_chunk_info(1).byte_offset
    with path.open("r+b") as raw:
        raw.seek(place + 5)
        byte = raw.read(1)
        raw.seek(place + 5)
        raw.write(bytes([byte[0] ^ 1]))
    _, second = MultiScale().sources(Probe(path), Hints())
    with pytest.raises(DataError, match=r"m\.h5:3Dmap, chunk \(1, 0, 0, 0, 0\)"):
        read_box(second, Box.whole((4, 4, 4)))


@pytest.mark.parametrize("known", [MultiScale(), MlperfSplit()])
def test_a_cut_file_is_found_before_it_is_read(tmp_path: Path, known: RawFormat) -> None:
    """A file that ends too early is damaged, not foreign."""
    path = tmp_path / "cut.h5"
    _, raw = _universe()
    many = {"3Dmap": np.zeros((2, 6, 6, 6, 4), "<u2"), "unitPar": np.zeros((2, 4))}
    _write(path, **(many if known.name == "multiScale_tryG" else {"x": raw, "y": PARAMETERS}))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"cut\.h5.*truncated"):
        known.claims(Probe(path))
