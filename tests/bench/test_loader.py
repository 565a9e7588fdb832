"""bench/loader.py: its figures are made of what happened, and its verdicts of the figures."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import voxload
from bench import loader
from bench.harness.memory import MemoryWatch, held_by
from bench.loading.cases import CONTENDERS, Contender, all_cases
from bench.loading.results import Run, Runs, epoch_seconds, findings, other_voxels, step_seconds
from tests.support import processes
from voxload.benchmark.generate.generate import generate
from voxload.benchmark.measure.record import Epoch, Kernel, Record, Steps
from voxload.benchmark.measure.turns import Turns


def _runs(**figures: Run) -> Runs:
    """Return one round of contenders, whose names have an underscore for each hyphen."""
    results: dict[Contender, tuple[Run, ...]] = {
        CONTENDERS[name.replace("_", "-")]: (run,) for name, run in figures.items()
    }
    return Turns(results, others=(0.0,))


def _run(*, later: float, held: int, first: float = 0.1, steps: tuple[float, ...] = (0.06,) * 3) -> Run:
    return Run(first, (1.0, later, later), 16, steps, base=100, peak=100 + held)


def test_goals_are_met_or_short_by_the_figures() -> None:
    """Three times the fastest peer that reads, half the memory, and the first batch as soon: each by itself."""
    peers = {"h5py_workers": _run(later=0.9, held=200), "h5py_single": _run(later=1.2, held=50)}
    for later, held, first, expected in (
        (0.3, 100, 0.1, (True, True, True)),
        (0.31, 100, 0.1, (False, True, True)),
        (0.3, 101, 0.1, (True, False, True)),
        (0.3, 100, 0.11, (True, True, False)),
    ):
        found = findings("hdf5-gzip", _runs(voxload=_run(later=later, held=held, first=first), **peers))
        met = {each.name.partition(": ")[2].partition(",")[0]: each.is_met for each in found}
        names = ("voxload times faster than h5py-workers", "memory beyond imports", "first batch")
        assert tuple(met[name] for name in names) == expected
        assert met["99th percentile of steps"]


def test_a_cache_is_compared_with_a_cache() -> None:
    """By all epochs, for filling it is part of it; who reads anew in each epoch is no measure of it."""
    for later, is_met in ((0.5, True), (0.51, False)):
        runs = _runs(
            voxload_cache=_run(later=later, held=1), monai=_run(later=0.5, held=1), h5py_workers=_run(later=0.1, held=1)
        )
        (found,) = findings("hdf5-gzip-small", runs)
        assert found.name == "hdf5-gzip-small: voxload-cache times faster than monai, all epochs"
        assert found.is_met == is_met


def test_a_pause_is_seen() -> None:
    """One slow step in a hundred shows in the 99th percentile."""
    (pause,) = findings("hdf5-gzip", _runs(voxload=_run(later=1, held=1, steps=(*[0.06] * 60, 0.3))))
    assert pause.median > 2
    assert not pause.is_met
    assert _run(later=1, held=1, steps=()).pause is None


def test_who_gives_other_voxels_is_named() -> None:
    """With what was found first."""
    right = _run(later=1, held=1)
    wrong = dataclasses.replace(right, wrong=("sample 1: 3, not 4", "sample 2: 5, not 6"))
    assert other_voxels("npy", _runs(voxload=right, dali=wrong)) == ["dali, npy: sample 1: 3, not 4"]


def test_times_are_those_of_the_record() -> None:
    """The first epoch begins where the loader is built; a step ends at the next request, in the next epoch too."""

    def epoch(*begin: float) -> Epoch:
        zeros, ones = (0.0,) * len(begin), (1,) * len(begin)
        return Epoch(Steps(begin, zeros, zeros, zeros, ones, ones), 2.5, Kernel(0, 0, 0.0), {}, math.nan)

    record = Record(0, "here", (epoch(1.0, 2.0, 3.0), epoch(5.0, 8.0)), 1.5, 0, 0)
    assert epoch_seconds(record) == (3.5, 2.5)
    assert step_seconds(record) == (1.0, 2.0, 3.0)


def test_memory_of_children_counts() -> None:
    """What a process holds that another one started is part of the peak, and gone with it."""
    size = 64 << 20
    hold = f"import sys; held = bytearray({size}); held[::4096] = bytes([1]) * len(held[::4096]); "
    hold += "print('held', flush=True); sys.stdin.read()"
    outer = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', sys.argv[1]]))"
    words = [sys.executable, "-c", outer, hold]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "held\n"
        watch = MemoryWatch(process.pid)
        assert size < held_by(process.pid) < 2 * size
        process.stdin.close()
        assert process.wait(processes.LIMIT) == 0
    assert watch.stop() > size


@pytest.mark.parametrize("name", ["zarr-zstd", "zarr-sharded-zstd", "npy"])
def test_all_storages_hold_the_same_voxels(tmp_path: Path, name: str) -> None:
    """Peers of different formats load one data set."""
    catalogs = [generate(tmp_path / each, all_cases(32, 2)[each].plan).catalog for each in ("hdf5-gzip", name)]
    first, other = (voxload.VolumeDataset(str(catalog)) for catalog in catalogs)
    np.testing.assert_array_equal(first[0][0], other[0][0])
    first.close()
    other.close()


def test_a_case_that_nobody_loads_is_no_success(tmp_path: Path) -> None:
    """There would be nothing short of what was asked for."""
    with pytest.raises(SystemExit, match="none that is here loads hdf5-gzip"):
        loader.main(["--cases", "hdf5-gzip", "--contenders", "npy-workers", "--folder", str(tmp_path)])
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_a_small_run_tells_what_it_saw(tmp_path: Path) -> None:
    """The command runs each contender in a process of its own, and writes every figure."""
    out = tmp_path / "loader.json"
    words = "--quick --size 32 --samples 2 --steady 1 --compute 0.001 --cases hdf5-gzip"
    loader.main(
        [
            *words.split(),
            "--contenders",
            "voxload,h5py-single",
            "--json",
            str(out),
            "--plot",
            str(tmp_path / "loader.png"),
        ]
    )
    document = json.loads(out.read_text())
    measured = document["measured"]["hdf5-gzip"]
    assert measured["wrong"] == []
    runs = {name: found[0] for name, found in measured["figures"]["contenders"].items()}
    assert set(runs) == {"voxload", "h5py-single"}
    for run in runs.values():
        assert 0 < run["first"] <= run["epochs"][0]
        assert len(run["epochs"]) == 4
        assert 0 < run["held"] < run["peak"]
    assert (tmp_path / "loader.png").stat().st_size > 1000
