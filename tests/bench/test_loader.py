"""bench/loader.py: its figures are made of what happened, and its verdicts of the figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import voxload
from bench.loading import command
from bench.loading.cases import all_cases
from bench.loading.contender import CONTENDERS
from bench.loading.goals import findings, other_voxels
from bench.loading.job import Account
from bench.loading.memory import MemoryWatch, held_by
from bench.loading.results import Result, Run, Weight
from bench.loading.samples import store

_CASE = all_cases(32, 2)["hdf5-gzip"]


def _result(name: str, *, later: float, held: int, first: float = 0.1, voxels: int = 1) -> Result:
    account = Account(first, (1.0, later, later), (0.06, 0.06, 0.06), ((voxels,),) * 3, base=100)
    return Result(CONTENDERS[name], _CASE, (Run(account, Weight(100, 100 + held), 16),))


def test_goals_are_met_or_short_by_the_figures() -> None:
    """Three times the fastest peer that reads, half the memory, and the first batch as soon: each by itself."""
    peers = [_result("h5py-workers", later=0.9, held=200), _result("h5py-single", later=1.2, held=50)]
    for later, held, first, expected in (
        (0.3, 100, 0.1, (True, True, True)),
        (0.31, 100, 0.1, (False, True, True)),
        (0.3, 101, 0.1, (True, False, True)),
        (0.3, 100, 0.11, (True, True, False)),
    ):
        found = findings([_result("voxload", later=later, held=held, first=first), *peers])
        met = {each.name.partition(": ")[2].partition(",")[0]: each.is_met for each in found}
        names = ("voxload times faster than h5py-workers", "memory beyond imports", "first batch")
        assert tuple(met[name] for name in names) == expected
        assert met["99th percentile of steps"]


def test_a_pause_is_seen() -> None:
    """One slow step in a hundred shows in the 99th percentile."""
    run = Run(Account(0.1, (1.0,), (*[0.06] * 60, 0.3), ((1,),), base=0), Weight(0, 1), 1)
    assert run.pause > 2
    assert not other_voxels([_result("voxload", later=1, held=1), _result("h5py-single", later=1, held=1)])
    rows = [_result(name, later=1, held=1) for name in ("h5py-single", "h5py-workers")]
    assert other_voxels([*rows, _result("voxload", later=1, held=1, voxels=2)]) == ["voxload, hdf5-gzip"]


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
        assert process.wait(20) == 0
    assert watch.stop() > size


@pytest.mark.parametrize("name", ["hdf5-gzip", "zarr-zstd", "zarr-sharded-zstd", "npy"])
def test_all_storages_hold_the_same_voxels(tmp_path: Path, name: str) -> None:
    """Peers of different formats load one data set."""
    stored = [store(all_cases(32, 2)[each], tmp_path)[0] for each in ("hdf5-gzip", name)]
    first, other = (voxload.VolumeDataset([str(path)], axes="CDHW") for path in stored)
    np.testing.assert_array_equal(first[0][0], other[0][0])
    first.close()
    other.close()


@pytest.mark.long
def test_a_small_run_tells_what_it_saw(tmp_path: Path) -> None:
    """The command runs each contender in a process of its own, and writes every figure."""
    out = tmp_path / "loader.json"
    words = "--quick --size 32 --samples 2 --steady 1 --compute 0.001 --cases hdf5-gzip"
    command.main(
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
    assert document["other_voxels"] == []
    runs = {each["contender"]: each["runs"][0] for each in document["results"]}
    assert set(runs) == {"voxload", "h5py-single"}
    for run in runs.values():
        assert 0 < run["first"] <= run["epochs"][0]
        assert len(run["epochs"]) == 4
        assert 0 < run["held"] < run["peak"]
    assert (tmp_path / "loader.png").stat().st_size > 1000
