"""``voxload bench generate``: what options become, what is printed, and calls that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from voxload.benchmark.cold.node_memory import memory_limit
from voxload.benchmark.generate.generated import Truth
from voxload.cli.bench.generate import EPILOG, generate
from voxload.data.dataset import VolumeDataset
from voxload.errors import StorageError, UsageError

SMALL = ["--shape", "2,16,16,32", "--num-samples", "2", "--workers", "1"]


def _run(*arguments: str) -> None:
    """Run the command as the program does."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command(epilog=EPILOG)(generate)
    assert not app(args=list(arguments), standalone_mode=False)


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    _run(*arguments, "--json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("stored", ["hdf5", "zarr2", "zarr3", "npy", "raw"])
@pytest.mark.parametrize("values", ["counts", "floats", "pattern"])
def test_a_data_set_is_made_and_reported(
    tmp_path: Path, stored: str, values: str, *, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every format and kind of values works with nothing said but its name, and its blocks are verified."""
    found = _json(capsys, str(tmp_path), "--format", stored, "--values", values, "--seed", "4", *SMALL)
    plan = Truth.of(tmp_path).plan
    assert found["plan"] == json.loads(json.dumps(plan.to_dict()))
    assert (found["samples"], found["written"], plan.contents.seed) == (2, 2, 4)
    assert plan.dtype == ("<f4" if values == "floats" else "<i2")
    assert found["bytes"] == 2 * plan.sample_bytes
    assert found["times_memory"] == pytest.approx(found["stored_bytes"] / memory_limit())
    data = VolumeDataset(tmp_path, halo=1)
    try:
        box = data.box(plan.spatial)
        assert Truth.of(tmp_path).check(data.sample_ids[1], box, data[1][0].numpy()) is None
    finally:
        data.close()


@pytest.mark.long
def test_layouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Chunks and shards are those that are said, else those of voxload convert, else none."""
    dry = ("--dry-run", "--num-samples", "1", "--shape", "4,128,128,128")

    def storage(*arguments: str) -> tuple[Any, Any, Any]:
        found = _json(capsys, str(tmp_path / "nothing"), *dry, *arguments)["plan"]["storage"]
        return found["chunks"], found["shards"], found["codec"]

    none = {"name": "none", "level": None}
    assert storage() == ([4, 64, 64, 64], [4, 128, 128, 128], none)
    assert storage("--shards", "none") == ([4, 64, 64, 64], None, none)
    assert storage("--chunks", "32,64,128", "--shards", "4,64,64,128") == ([4, 32, 64, 128], [4, 64, 64, 128], none)
    assert storage("--chunks", "3,64,64,64") == ([3, 64, 64, 64], [6, 128, 128, 128], none)
    assert storage("--chunks", "1,32,32,32", "--shards", "none") == ([1, 32, 32, 32], None, none)
    compressed = (
        "--shape",
        "4,64,64,64",
        "--format",
        "hdf5",
        "--codec",
        "gzip",
        "--level",
        "9",
    )  # a sample is compressed
    assert storage(*compressed) == ([4, 32, 32, 32], None, {"name": "gzip", "level": 9})
    assert storage("--format", "hdf5", "--chunks", "none") == (None, None, none)
    assert storage("--format", "zarr2", "--axes", "dhwc") == ([4, 64, 64, 64], None, none)
    assert storage("--format", "npy") == (None, None, none)
    assert not (tmp_path / "nothing").exists()


def test_size_by_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a number of samples the data set is so many times the memory of all nodes, as stored."""
    dry = (str(tmp_path / "nothing"), "--dry-run", "--shape", "1,64,64,64", "--memory", "1GiB")
    plain = _json(capsys, *dry)
    assert plain["samples"] == 5 * 2**30 // 2**19
    assert plain["times_memory"] == 5
    many = _json(capsys, *dry, "--nodes", "3", "--times-memory", "2")
    assert many["samples"] == 6 * 2**30 // 2**19
    packed = _json(capsys, *dry, "--codec", "blosc-zstd")
    assert 5 <= packed["times_memory"] < 5.001
    assert packed["samples"] > 3 * plain["samples"]


@pytest.mark.long
def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """People read what was made, where, and that it is too small to measure storage with."""
    _run(str(tmp_path), "--memory", "1GiB", *SMALL)
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "2 of counts",
        "chunks (2, 8, 8, 16)",
        "codec none",
        "2 samples in",
        "catalog",
        "below 5 times memory",
    ):
        assert part in text
    with pytest.raises(SystemExit):
        typer.main.get_command(_app())(["--help"])
    assert "bench generate bench-data" in " ".join(capsys.readouterr().out.split())


def _app() -> typer.Typer:
    app = typer.Typer()
    app.command(epilog=EPILOG)(generate)
    return app


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--shape", "16,16,32"], "--shape"),
        (["--format", "npy", "--chunks", "8,8,8"], "--chunks"),
        (["--format", "hdf5", "--chunks", "none", "--shards", "2,8,8,8"], "--shards"),
        (["--format", "hdf5", "--shards", "2,8,8,8"], "only zarr3"),
        (["--format", "zarr2", "--chunks", "none"], "no chunks"),
        (["--chunks", "8,8"], "--chunks"),
        (["--chunks", "0,8,8"], "--chunks"),
        (["--shape", "0,16,16,32"], "--shape"),
        (["--shards", "8,8,8"], "--shards"),
        (["--chunks", "8,8,64"], "--chunks"),
        (["--codec", "brotli"], "brotli"),
        (["--axes", "CDHQ"], "CDHQ"),
        (["--dtype", "i3"], "i3"),
        (["--values", "counts", "--dtype", "<f4"], "values counts"),
        (["--memory", "4G"], "4G"),
    ],
)
def test_calls_that_are_refused(tmp_path: Path, arguments: list[str], found: str) -> None:
    """The option, or what it contradicts, is named; nothing is written."""
    with pytest.raises(UsageError, match=found):
        _run(str(tmp_path / "new"), *SMALL, *arguments)
    assert not (tmp_path / "new").exists()


def test_a_data_set_that_the_disk_cannot_hold(tmp_path: Path) -> None:
    """The memory of many nodes is soon more than a disk."""
    with pytest.raises(StorageError, match="fewer samples"):
        _run(str(tmp_path / "new"), "--shape", "8,2048,2048,2048", "--memory", "512GiB", "--nodes", "1000")
    assert not (tmp_path / "new").exists()
