"""bench/readers.py: every contender reads what was generated, and one that does not is named."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bench import cold, read_memory, readers
from bench.harness.samples import LAYOUTS, Sample, buffer_like
from bench.reading import hdf5
from bench.reading.cases import CROP, CROPS, Case, all_cases
from bench.reading.contender import Job
from bench.reading.goals import all_goals
from bench.reading.hdf5_processes import divide
from bench.reading.peers import SlicedZarr
from voxload.benchmark.loaders.hdf5_array import Hdf5Array
from voxload.geometry import Box, chunks_touched

SIZE, CHUNK = 64, 32
WORDS = ("--size", str(SIZE), "--chunks", str(CHUNK), "--rounds", "2", "--budget", "0", "--tries", "1")
IN_PROCESSES = {"h5py slice", "h5py read_direct", "h5py, 2 processes"}
FIELDS = {"peer", "title", "threads", "median_s", "spread", "seconds"}


def run(folder: Path, *words: str, status: int = 0) -> list[dict[str, Any]]:
    """Return the tables of a small run."""
    path = folder / "readers.json"
    assert readers.main([*WORDS, "--folder", str(folder / "samples"), "--json", str(path), *words]) == status
    found = json.loads(path.read_text())
    assert set(found) == {"machine", "absent", "goals", "tables"}
    return list(found["tables"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("layout", "others"),
    [
        pytest.param("hdf5-contiguous", {*IN_PROCESSES, "numpy memmap"}, marks=pytest.mark.long),
        pytest.param("hdf5-gzip", IN_PROCESSES, marks=pytest.mark.long),
        pytest.param("hdf5-blosc-lz4", IN_PROCESSES, marks=pytest.mark.long),
        pytest.param("zarr-sharded-blosc", {"zarr-python"}, marks=pytest.mark.long),
        ("npy", {"numpy memmap"}),
    ],
)
def test_contenders_read_what_was_generated(tmp_path: Path, layout: str, others: set[str]) -> None:
    """From memory and from the device, whole octants and many crops; each is timed in every round."""
    tables = run(tmp_path, "--formats", layout, "--dtypes", "int16")
    assert [table["case"] for table in tables] == ["octant", "halo", "crops", "cold"]
    for table in tables:
        assert not table["wrong"]
        assert all(set(row) == FIELDS and len(row["seconds"]) == 2 for row in table["contenders"])
        titles = {row["title"].split(" (")[0] for row in table["contenders"]}
        copied = set() if table["case"] == "cold" else {"memcpy"}
        assert titles >= {"voxload, 1 thread", "voxload, 2 threads", *others, *copied}
        assert table["chunk"] == (CHUNK if LAYOUTS[layout].is_chunked else None)
    octant, *_, crops, cold = tables
    assert octant["useful_bytes"] == (SIZE // 2) ** 3 * 2
    assert crops["useful_bytes"] == CROPS * CROP**3 * 2
    # All of it was there once. Afterwards the system may take pages back whenever it likes, and the table says so.
    assert octant["resident"][0] <= octant["resident"][1] == 1.0
    assert cold["resident"][0] <= cold["resident"][1]


@pytest.mark.long
def test_goals_have_figures_and_a_picture(tmp_path: Path) -> None:
    """Of those formats that were read; those of others are no goals of the run."""
    picture = tmp_path / "readers.png"
    run(tmp_path, "--formats", "npy,hdf5-chunked", "--cases", "octant", "--dtypes", "float32", "--plot", str(picture))
    goals = json.loads((tmp_path / "readers.json").read_text())["goals"]
    assert {(goal["layout"], goal["versus"], goal["wanted"]) for goal in goals} == {
        ("hdf5-chunked", "h5py read_direct", 2.0),
        ("hdf5-chunked", "memcpy", 0.4),
        ("npy", "memcpy", 0.4),
    }
    assert all(goal["measured"] > 0 and goal["dtype"] == "float32" for goal in goals)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(all_goals(tuple(LAYOUTS))) == 33


def test_a_contender_that_gives_other_voxels_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not timed, and the exit status is 1; all others are."""
    monkeypatch.setattr(SlicedZarr, "fill", lambda *_: None)
    words = ("--formats", "zarr-gzip", "--cases", "octant", "--dtypes", "int16", "--peers", "zarr,memcpy")
    (table,) = run(tmp_path, *words, status=1)
    assert table["wrong"] == ["zarr-python"]
    assert [row["peer"] for row in table["contenders"]] == ["voxload", "voxload", "memcpy"]


def job(folder: Path, case: Case, chunk: int | None = CHUNK) -> Job:
    """Return a job that reads nothing yet."""
    sample = Sample(folder, "hdf5-chunked" if chunk else "hdf5-contiguous", "int16", SIZE, chunk)
    expected = np.concatenate([sample.voxels(box) for box in case.boxes])
    return Job(sample, case, buffer_like(expected), expected, (2,))


@pytest.mark.parametrize("chunk", [8, 32, None])
@pytest.mark.parametrize("name", ["octant", "halo", "crops"])
@pytest.mark.parametrize("workers", [2, 3])
def test_processes_share_boxes_and_decode_no_chunk_twice(
    tmp_path: Path, name: str, workers: int, chunk: int | None
) -> None:
    """All voxels are somebody's, each once; a crop is one process's, whose chunks others may need, too."""
    case = all_cases(SIZE)[name]
    shares = divide(job(tmp_path, case, chunk), workers)
    assert len(shares) == workers
    read = np.zeros((len(case.boxes), *case.boxes[0].shape), int)
    for index, source, target in (part for share in shares for part in share):
        assert source.relative_to(case.boxes[index].start) == target
        read[index][target.slices] += 1
    assert (read == 1).all()
    if chunk and name != "crops":
        touched = [set(_places(source, chunk)) for share in shares for _, source, _ in share]
        assert sum(map(len, touched)) == len(set().union(*touched))


def _places(box: Box, chunk: int) -> list[tuple[int, ...]]:
    grid = chunks_touched(box, (chunk,) * 3)
    return [tuple(map(sum, zip(grid.start, place, strict=True))) for place in np.ndindex(*grid.shape)]


def test_the_only_chunk_of_a_job_is_pushed_out_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each read, by a voxel of another chunk: the read would find it decoded otherwise."""
    asked: list[Box] = []
    alone = job(tmp_path, Case("alone", (Box((32, 32, 32), (64, 64, 64)),)))
    alone.sample.write()
    (slices, direct) = hdf5.entries(alone)
    assert len(slices.settings) == len(direct.settings) == 1
    read = Hdf5Array.read

    def watched(self: Hdf5Array, source: Any, out: Any, target: Any) -> None:
        asked.append(Box(tuple(each.start for each in source), tuple(each.stop for each in source)))
        read(self, source, out, target)

    monkeypatch.setattr(Hdf5Array, "read", watched)
    session = direct.settings[0].open(alone)
    session.prepare()
    session.read()
    session.close()
    assert asked == [Box((0, 0, 0), (1, 1, 1)), *alone.case.boxes]
    np.testing.assert_array_equal(alone.out, alone.expected)


@pytest.mark.parametrize(
    ("script", "words", "remedy"),
    [
        (cold, ("--volumes", "2", "--size", "64"), "expected 256 MiB or more"),
        (read_memory, ("--size", "64"), "expected a multiple of 128"),
        (readers, ("--size", "64", "--chunks", "64"), "expected at least two chunks"),
    ],
)
def test_sizes_that_tell_nothing_are_refused(
    script: ModuleType,
    words: tuple[str, ...],
    remedy: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With what to ask for instead, before anything is written."""
    monkeypatch.setattr("sys.argv", ["bench", *words])
    with pytest.raises(SystemExit, match="2"):
        script.main()
    assert remedy in " ".join(capsys.readouterr().err.split())
