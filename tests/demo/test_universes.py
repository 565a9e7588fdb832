"""Tests of the demo's raw universes: layout, statistics, independence and repetition."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support import processes
from voxload.demo.parameters import NAMES, to_physical
from voxload.demo.universes import REDSHIFTS, Universe, UniverseSpec, make_universes, write_universe
from voxload.errors import UsageError


@pytest.mark.long
def test_file_has_the_raw_layout(tmp_path: Path) -> None:
    """A file holds what cosmoUniverse files hold: counts with the redshift last, parameters scaled and physical."""
    (path,) = make_universes(tmp_path / "raw", count=1, size=16, seed=5)
    with h5py.File(path) as file:
        assert set(file) == {"full", "unitPar", "physPar", "namePar", "redshifts"}
        assert file["full"].shape == (16, 16, 16, 4)
        assert file["full"].dtype == np.int16
        assert file["full"].chunks is None
        assert file["unitPar"].shape == (4,)
        assert file["unitPar"].dtype == np.float32
        assert np.abs(file["unitPar"][:]).max() <= 1
        np.testing.assert_allclose(to_physical(file["unitPar"][:]), file["physPar"][:], rtol=1e-6)
        assert tuple(file["namePar"].asstr()[:]) == NAMES
        assert tuple(file["redshifts"][:]) == REDSHIFTS
        np.testing.assert_array_equal(file["full"][:], Universe.draw(UniverseSpec(5, 0, 16)).counts)


@pytest.mark.long
def test_counts_have_the_mean_that_was_asked_for() -> None:
    """The mean count over several universes is `mean_count` within its statistical error, for each redshift."""
    universes = [Universe.draw(UniverseSpec(1, index, 32, mean_count=20.0)) for index in range(8)]
    means = np.array([universe.counts.mean(axis=(0, 1, 2)) for universe in universes])
    assert (np.abs(means.mean(axis=0) - 20) < 4 * means.std(axis=0, ddof=1) / np.sqrt(len(means))).all()
    assert means.mean() == pytest.approx(20, rel=0.02)


def test_counts_scatter_like_poisson_around_the_density() -> None:
    """At a high redshift and few counts per cell, the variance is the mean plus the field's variance."""
    spec = UniverseSpec(2, 0, 32, mean_count=4.0)
    universe = Universe.draw(spec)
    spectrum = spec.grid.spectrum(to_physical(universe.unit))
    last = len(REDSHIFTS) - 1
    field = np.mean([spec.grid.overdensity(spectrum, REDSHIFTS[last], seed=seed).var() for seed in range(6)])
    assert universe.counts[..., last].var() == pytest.approx(4 + 16 * field, rel=0.05)


def test_channels_are_one_universe_at_four_times() -> None:
    """Neighbouring redshifts correlate, and the clustering falls with redshift."""
    counts = np.log1p(Universe.draw(UniverseSpec(3, 0, 32)).counts.reshape(-1, 4).astype(float))
    assert np.corrcoef(counts.T)[0, 1:].min() > 0.8
    assert (np.diff(counts.var(axis=0)) < 0).all()


@pytest.mark.long
def test_universes_are_repeatable_and_independent(tmp_path: Path) -> None:
    """Universe i depends on seed and i only: neither on the count of universes nor on who draws it."""
    few = make_universes(tmp_path / "few", count=2, size=8, seed=9, workers=1)
    many = make_universes(tmp_path / "many", count=8, size=8, seed=9, workers=2)
    assert [path.name for path in many[:2]] == [path.name for path in few]
    assert [path.read_bytes() for path in many[:2]] == [path.read_bytes() for path in few]
    assert len({path.read_bytes() for path in many}) == 8
    units = np.array([Universe.draw(UniverseSpec(9, index, 8)).unit for index in range(20)])
    assert np.abs(units).max() <= 1
    assert not np.array_equal(Universe.draw(UniverseSpec(10, 0, 8)).unit, units[0])


@pytest.mark.long
def test_parameters_fill_their_range() -> None:
    """The scaled parameters of many universes are uniform in [-1, 1] and independent of each other."""
    units = np.array([Universe.draw(UniverseSpec(4, index, 8)).unit for index in range(60)])
    assert np.abs(units.mean(axis=0)).max() < 4 * np.sqrt(1 / 3 / len(units))
    assert np.abs(units).max(axis=0).min() > 0.9
    assert np.abs(np.corrcoef(units.T) - np.eye(4)).max() < 4 / np.sqrt(len(units))


@pytest.mark.long
def test_a_second_run_keeps_what_matches(tmp_path: Path) -> None:
    """Complete files stay untouched, missing ones are made, those of another seed are replaced."""
    told: list[int] = []
    paths = make_universes(tmp_path, count=3, size=8, seed=1, progress=told.append)
    assert sum(told) == 3
    before = [path.stat().st_mtime_ns for path in paths]
    content = paths[1].read_bytes()
    paths[1].unlink()
    told.clear()
    assert make_universes(tmp_path, count=3, size=8, seed=1, progress=told.append) == paths
    assert sum(told) == 3
    after = [path.stat().st_mtime_ns for path in paths]
    assert (after[0], after[2]) == (before[0], before[2])
    assert paths[1].read_bytes() == content
    make_universes(tmp_path, count=3, size=8, seed=2)
    assert paths[1].read_bytes() != content
    assert sorted(tmp_path.iterdir()) == paths


@pytest.mark.parametrize("content", [b"not HDF5", None])
def test_a_foreign_file_is_never_replaced(tmp_path: Path, content: bytes | None) -> None:
    """A file of the same name that the demo did not write stops the run before anything is written."""
    foreign = tmp_path / "universe-00001.hdf5"
    if content is None:
        with h5py.File(foreign, "w") as file:
            file["full"] = np.zeros(3)
    else:
        foreign.write_bytes(content)
    before = foreign.read_bytes()
    with pytest.raises(UsageError, match="choose another folder"):
        make_universes(tmp_path, count=2, size=8, seed=0)
    assert foreign.read_bytes() == before
    assert list(tmp_path.iterdir()) == [foreign]


def test_a_count_beyond_int16_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    """A cell that int16 cannot hold is refused, never clipped or wrapped, and no file appears."""
    with pytest.raises(UsageError, match="smaller mean_count"):
        write_universe(tmp_path / "universe.hdf5", UniverseSpec(0, 0, 16, mean_count=30000.0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"seed": -1, "index": 0, "size": 8},
        {"seed": 0, "index": -1, "size": 8},
        {"seed": 0, "index": 0, "size": 8, "mean_count": 0.0},
        {"seed": 0, "index": 0, "size": 8, "mean_count": 40000.0},
    ],
)
def test_impossible_specifications_are_refused(spec: dict[str, float]) -> None:
    """Negative seeds and impossible counts raise UsageError."""
    with pytest.raises(UsageError, match=r"seed|mean_count"):
        UniverseSpec(**spec)  # type: ignore[arg-type]  # one dict for fields of two types


@pytest.mark.parametrize(("count", "size", "workers"), [(0, 8, 1), (1, 9, 1), (1, 8, 0)])
def test_impossible_collections_are_refused_before_anything_is_written(
    tmp_path: Path, count: int, size: int, workers: int
) -> None:
    """No universes, an odd size and no workers raise UsageError and make no folder."""
    with pytest.raises(UsageError, match="expected"):
        make_universes(tmp_path / "raw", count=count, size=size, seed=0, workers=workers)
    assert list(tmp_path.iterdir()) == []


MAKING = """
import sys
from pathlib import Path
from voxload.demo.universes import make_universes
try:
    make_universes(Path(sys.argv[1]), count=2**12, size=32, seed=0, workers=2)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.long
@pytest.mark.parametrize("written", [8, *(pytest.param(count, marks=pytest.mark.long) for count in (1, 16, 24, 40))])
def test_an_interrupt_of_the_whole_group_ends_it(tmp_path: Path, written: int) -> None:
    """Ctrl-C reaches the workers, too: none is left waiting for a lock that another one had."""
    command = [sys.executable, "-c", MAKING, str(tmp_path)]
    with processes.started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and len(list(tmp_path.glob("*.hdf5"))) < written:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        told = process.communicate(timeout=processes.LIMIT)
    assert (*told, process.returncode) == ("interrupted\n", "", 0)
