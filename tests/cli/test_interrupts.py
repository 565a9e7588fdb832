"""Ctrl-C in the middle of work: one line, status 130, and nothing left that is not taken up again."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.support import scripts
from voxload.cli.main import run
from voxload.convert import convert

PROGRAM = """
import json, os, signal, sys
from voxload.cli import main, terminal

signal.signal(signal.SIGINT, signal.default_int_handler)
update = terminal.tqdm.update

def interrupt(bar, steps=1):
    update(bar, steps)
    os.kill(os.getpid(), signal.SIGINT)

terminal.tqdm.update = interrupt  # of every command: work is under way when its bar moves
print(json.dumps([main.run(call) for call in json.loads(sys.argv[1])]))
"""
"""Runs commands one after the other; each is interrupted as soon as it has done a part of its work."""


def _interrupted(folder: Path, *calls: list[str]) -> tuple[list[int], str]:
    """Return the exit status of each command, and what all of them wrote on standard error."""
    done = scripts.run(PROGRAM, json.dumps(calls), cwd=folder, imports=["voxload.cli.main", "voxload.convert"])
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def _segments() -> set[str]:
    """Return the segments of shared memory that are voxload's and that no process has any more.

    Others of this machine have theirs, such as a benchmark that is tested at the same time.
    """
    names = {path.name for path in Path("/dev/shm").iterdir() if path.name.startswith("voxload")}  # noqa: S108 - Linux's
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            held = maps.read_text()
            names = {name for name in names if name not in held}
    return names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with raw cubes and a conversion of them."""
    (tmp_path / "raw").mkdir()
    for number in range(3):
        np.save(tmp_path / "raw" / f"u{number}.npy", np.random.default_rng(number).normal(size=(16, 16, 16)))
    convert(tmp_path / "raw", tmp_path / "done")
    return tmp_path


def test_work_in_this_process_ends_in_one_line(folder: Path) -> None:
    """Conversion and verification; a conversion leaves no lock and is taken up."""
    statuses, errors = _interrupted(folder, ["convert", "raw", "out"], ["verify", "done"])
    assert (statuses, errors) == ([130, 130], "voxload: interrupted\n" * 2)
    assert not (folder / "out" / "catalog.parquet").exists()
    assert not list((folder / "out").rglob("*.lock"))
    convert(folder / "raw", folder / "out")
    left = {path.name for path in (folder / "out").iterdir()}
    assert left == {path.name for path in (folder / "done").iterdir()}


@pytest.mark.long
def test_what_loads_torch_ends_in_one_line(tmp_path: Path) -> None:
    """Simulations, and data sets for a benchmark."""
    simulation = ["simulate", "--machine", "nopfs-cluster", "--samples", "48", "--sample-bytes", "1MB"]
    made = ["bench", "generate", "made", "--shape", "1,16,16,16", "--num-samples", "2"]
    statuses, errors = _interrupted(tmp_path, simulation, made)
    assert (statuses, errors) == ([130, 130], "voxload: interrupted\n" * 2)
    assert not (tmp_path / "made" / "catalog.parquet").exists()


@pytest.mark.long
def test_ranks_end_with_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and measuring in processes: whoever started them ends them; the checkpoint of an epoch stays."""
    raw = folder / "labelled"
    raw.mkdir()
    for number in range(8):
        np.savez(raw / f"u{number}.npz", x=np.random.default_rng(number).random((32, 32, 32), np.float32))
    (folder / "targets.csv").write_text("sample,a\n" + "".join(f"u{number},{number}\n" for number in range(8)))
    convert_call = ["convert", "labelled", "samples", "--targets", "targets.csv"]
    monkeypatch.chdir(folder)
    assert run(convert_call) == 0
    before = _segments()
    calls = [
        ["train", "samples", "--nproc", "2", "--spatial", "2,1,1", "--epochs", "99", "--output", "run"],
        ["bench", "run", "samples", "--nproc", "2", "--spatial", "2,1,1", "--repeats", "9", "--output", "o.json"],
    ]
    assert _interrupted(folder, *calls) == ([130, 130], "voxload: interrupted\n" * 2)
    assert not (folder / "o.json").exists()
    assert (folder / "run" / "checkpoint.pt").exists()
    assert not list(folder.rglob("*.partial-*"))
    assert not _segments() - before
