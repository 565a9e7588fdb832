"""append: what readers see of a catalogue that grows are whole generations, whoever writes, or dies while it does."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import processes
from voxload.catalog import Catalog, Entry, Rows, note_failures, read_failures, write_rows
from voxload.catalog.append import append
from voxload.catalog.generations import at_generation, generation_of
from voxload.cli.main import run
from voxload.errors import DataError, NotFoundError, StorageError, UsageError
from voxload.files.lock import exclusive

WRITER = Path(__file__).with_name("writes_catalog.py")
READER = Path(__file__).with_name("reads_catalog.py")
ROUNDS = int(os.environ.get("VOXLOAD_SOAK_ROUNDS", "20"))
"""Of the long test, each of three appends of each writer: 250 take some minutes."""
ROOT = Path(__file__).parents[2]


def _rows(folder: Path, *samples: str, there: bool = True, **targets: float) -> Rows:
    """Return rows of small volumes, which are written."""
    folder.mkdir(exist_ok=True)
    entries = []
    for sample in samples:
        if there:
            np.save(folder / f"{sample}.npy", np.zeros((2, 2, 2), np.int16))
        entries.append(Entry(sample, f"{sample}.npy", "", (2, 2, 2), "<i2", "DHW", 16, targets or {"t": 1.0}))
    return Rows.of(Catalog.from_entries(entries, folder).whole, folder, name=str(folder))


def test_each_append_is_a_generation(tmp_path: Path) -> None:
    """What was read before can be had again; rows that are there already change nothing; no target comes of it."""
    place = tmp_path / "catalog.parquet"
    first = append(tmp_path, [_rows(tmp_path / "a", "s2", "s9")])
    second = append(place, [_rows(tmp_path / "b", "s1"), _rows(tmp_path / "a", "s9")])
    assert [(each.generation, each.added, each.rows) for each in (first, second)] == [(1, 2, 2), (2, 1, 3)]
    before = place.read_bytes()
    assert append(place, [_rows(tmp_path / "b", "s1")]).added == 0
    assert place.read_bytes() == before
    found = Catalog.read(place)
    assert (found.samples, found.target_names) == (("s1", "s2", "s9"), ("t",))
    assert found.entry("s1", "").path == "b/s1.npy"
    assert generation_of(found) == 2
    assert at_generation(found, 1).samples == ("s2", "s9")
    assert at_generation(found, 0).samples == ()
    assert at_generation(found, 2) is found
    with pytest.raises(UsageError, match=r"found generation 2, expected 3"):
        at_generation(found, 3)


def test_a_catalogue_that_was_there_grows(tmp_path: Path) -> None:
    """Its rows are of generation 0."""
    place = tmp_path / "catalog.parquet"
    write_rows({place: _rows(tmp_path, "s1")})
    assert generation_of(Catalog.read(place)) == 0
    append(place, [_rows(tmp_path, "s2")])
    assert at_generation(Catalog.read(place), 0).samples == ("s1",)


def test_what_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    """Another truth of a sample, another column, a volume that is not there; and a lock that others hold."""
    place = tmp_path / "catalog.parquet"
    append(place, [_rows(tmp_path, "s1")])
    before = place.read_bytes()
    with pytest.raises(DataError, match="sample 's1'"):
        append(place, [_rows(tmp_path, "s1", t=2.0)])
    with pytest.raises(UsageError, match=r"column 'u': found in .*the same columns"):
        append(place, [_rows(tmp_path, "s2", t=1.0, u=2.0)])
    with pytest.raises(NotFoundError, match=r"s3\.npy of sample 's3'.*when they are complete"):
        append(place, [_rows(tmp_path, "s3", there=False)])
    with exclusive(tmp_path / ".catalog.parquet.append.lock", patience=0), pytest.raises(StorageError, match="lock of"):
        append(place, [_rows(tmp_path, "s4")], patience=0)
    with pytest.raises(UsageError, match="no catalogue"):
        append(tmp_path / "none.parquet", [])
    assert place.read_bytes() == before


def test_failures_are_noted_until_they_are_made_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the command too; a file that says something else is refused."""
    assert read_failures(tmp_path) == {}
    note_failures(tmp_path, {"s2": "out of memory"})
    note_failures(tmp_path, {"s1": "killed"})
    assert read_failures(tmp_path) == {"s1": "killed", "s2": "out of memory"}
    write_rows({tmp_path / "more.parquet": _rows(tmp_path, "s2")})
    words = ["catalog", "append", str(tmp_path), str(tmp_path / "more.parquet"), "--failed", "s3=no disk=full"]
    assert run(words) == 0
    assert "generation 1, 1 rows more, 1 rows\n2 samples could not be made" in capsys.readouterr().out
    assert read_failures(tmp_path) == {"s1": "killed", "s3": "no disk=full"}
    note_failures(tmp_path, {"s2": "it is there"})
    assert run(["catalog", "list", str(tmp_path), "--failed"]) == 0
    assert "no disk=full" in capsys.readouterr().out
    assert run(["catalog", "append", str(tmp_path)]) == 2
    assert run(["catalog", "append", str(tmp_path), "--failed", "x"]) == 2
    (tmp_path / "failures.json").write_text("[1]")
    with pytest.raises(DataError, match=r"failures\.json"):
        read_failures(tmp_path)


def _check_growth(seen: list[Catalog]) -> None:
    """Check that each catalogue has all that was seen before, at the generation at which it was."""
    for before, after in pairwise(seen):
        assert generation_of(after) >= generation_of(before)
        assert at_generation(after, generation_of(before)).table.equals(before.table)


_KEPT = 200
"""Generations of which the tables are compared at the end: each is as large as the catalogue."""


def _hammer(folder: Path, *, writers: int, count: int, kills: int) -> None:
    """Let writers append, some of which are killed and started again, while this process and another one read."""
    rng = random.Random(0)
    with ExitStack() as ending:
        started: dict[str, subprocess.Popen[Any]] = {}
        for number in range(writers):
            command = [sys.executable, str(WRITER), str(folder), f"w{number}", str(count)]
            words: Any = {"stdout": subprocess.PIPE, "cwd": ROOT}
            started[f"w{number}"] = ending.enter_context(processes.started(command, **words))
        names = list(started)
        for name in names[:kills]:
            for _ in range(rng.randint(1, count // 2)):
                assert started[name].stdout is not None
                started[name].stdout.readline()  # type: ignore[union-attr] # it is there
            started[name].send_signal(signal.SIGKILL)
            started[name].wait(processes.LIMIT)
            command = [sys.executable, str(WRITER), str(folder), name, str(count)]
            started[name] = ending.enter_context(processes.started(command, stdout=subprocess.PIPE, cwd=ROOT))
        seen: list[Catalog] = []
        while not (folder / "catalog.parquet").exists():
            assert all(each.poll() is None for each in started.values())
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
        reader = ending.enter_context(processes.started([sys.executable, str(READER), str(folder)], **pipes))
        while any(each.poll() is None for each in started.values()):
            found = Catalog.read(folder)
            assert all((folder / found.entry(*key).path).exists() for key in found.keys[-3:])
            if not seen or generation_of(found) > generation_of(seen[-1]):
                seen = [*seen[-_KEPT:], found]
        assert [each.returncode for each in started.values()] == [0] * writers
        told, _ = reader.communicate(timeout=processes.LIMIT)  # whose standard input ends by that
        assert reader.returncode == 0
        assert int(told.split()[1]) == writers * count
    _check_growth(seen)
    found = Catalog.read(folder)
    assert found.samples == tuple(sorted(f"w{one}-{each:04}" for one in range(writers) for each in range(count)))
    assert generation_of(found) == writers * count
    assert [path.name for path in folder.iterdir() if path.suffix != ".npy"] == ["catalog.parquet"]


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    """Three at once, one of which is killed and comes again; readers see every generation whole."""
    _hammer(tmp_path, writers=3, count=12, kills=1)


@pytest.mark.long
def test_many_more_writers_lose_nothing(tmp_path: Path) -> None:
    """Eight, of which four are killed."""
    _hammer(tmp_path, writers=8, count=3 * ROUNDS, kills=4)


def test_a_pipe_in_the_catalogues_place_stops_nobody(tmp_path: Path) -> None:
    """Nor one in the place of what could not be made."""
    os.mkfifo(tmp_path / "catalog.parquet")
    (tmp_path / "raw").mkdir()
    np.save(tmp_path / "raw" / "a.npy", np.zeros((2, 2, 2), np.int16))
    for more in (["--append"], []):
        assert run(["convert", str(tmp_path / "raw"), str(tmp_path), *more]) == 2
    (tmp_path / "catalog.parquet").unlink()
    os.mkfifo(tmp_path / "failures.json")
    with pytest.raises(UsageError, match="a named pipe"):
        read_failures(tmp_path)
