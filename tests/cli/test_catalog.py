"""``voxload catalog``: what is printed and written, and its exit status is 0, 1 or 2."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.catalog.tables import written
from voxload.catalog.columns import SUMMARY_TYPE
from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog
from voxload.cli.main import run

SAMPLES = [f"s{number}" for number in range(20)]
UNIVERSES = [f"u{number // 2}" for number in range(20)]


def _statistics(count: int) -> pa.Array:
    """Return statistics of volumes of two voxels, n and n + 2, but for the last."""
    figures = [
        {"count": 2, "nan_count": 1, "inf_count": 0, "min": n, "max": n + 2, "mean": n + 1, "std": 1.0}
        for n in range(count - 1)
    ]
    return pa.array([*(figure | {"channels": [figure, figure]} for figure in figures), None], SUMMARY_TYPE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a catalogue of twenty samples, two of each universe."""
    monkeypatch.chdir(tmp_path)
    written(
        tmp_path / "in" / CATALOG_NAME,
        SAMPLES,
        universe=UNIVERSES,
        statistics=_statistics(20),
        omega_m=[number / 20 for number in range(20)],
        h0=[float("nan"), *[0.7] * 19],
        note=["x"] * 20,
    )
    return tmp_path


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert run(["catalog", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("folder")
def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows, totals and merged figures; a limit shortens only what is printed."""
    assert run(["catalog", "list", "in", "--where", "omega_m >= 0.5", "--limit", "3", "--statistics"]) == 0
    printed = capsys.readouterr().out
    for words in ("s10", "s12", "4,8,8,8", "u5", "0.55", "and 7 more rows", "10 samples, 10 volumes", "full"):
        assert words in printed
    assert "s13" not in printed
    assert "without 1 volumes that have no statistics" in printed
    assert max(map(len, printed.splitlines())) <= 80
    found = _json(["list", "in", "--where", "omega_m >= 0.5", "--limit", "3", "--statistics"], capsys)
    assert (found["samples"], found["volumes"], len(found["rows"])) == (10, 10, 3)
    assert found["stored_bytes"] == sum(range(1010, 1020))
    assert found["rows"][0] | {"sample": "s10", "note": "x", "omega_m": 0.5, "shape": [4, 8, 8, 8]} == found["rows"][0]
    assert "statistics" not in found["rows"][0]
    figures = found["statistics"]["full"]
    voxels = [n + step for n in range(10, 19) for step in (0, 2)]
    assert (figures["volumes"], figures["unknown"], figures["whole"]["count"]) == (9, 1, 18)
    assert (figures["whole"]["min"], figures["whole"]["max"], figures["whole"]["nan_count"]) == (10, 20, 9)
    assert figures["whole"]["mean"] == pytest.approx(np.mean(voxels))
    assert figures["whole"]["std"] == pytest.approx(np.std(voxels))
    assert len(figures["channels"]) == 2


def test_list_cuts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In a narrow terminal what is long goes on below: a cut id names nothing."""
    monkeypatch.setenv("COLUMNS", "40")
    written(tmp_path / CATALOG_NAME, ["universe-00000-of-the-first-kind"], omega_m=[0.123456], sigma_eight=[0.5])
    assert run(["catalog", "list", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "\u2026" not in printed
    firsts = [line.split(" ")[1] for line in printed.splitlines() if line.startswith(" ") and line.strip()]
    assert "universe-00000-of-the-first-kind" in "".join(firsts)


@pytest.mark.usefixtures("folder")
def test_list_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """Any column can be asked for, fields of statistics too; JSON has null for what is not a finite number."""
    found = _json(["list", f"in/{CATALOG_NAME}", "--columns", "sample,h0,statistics.mean,window"], capsys)
    assert found["rows"][0] == {"sample": "s0", "h0": None, "statistics.mean": 1.0, "window": None}
    assert len(found["rows"]) == 20
    assert run(["catalog", "list", "in", "--columns", "sample,statistics.max,path"]) == 0
    printed = capsys.readouterr().out
    assert "s19.zarr" in printed
    assert "omega_m" not in printed


def test_merge(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catalogues of two folders become one that names the files of both."""
    written(folder / "deep" / "other" / CATALOG_NAME, ["t"], universe=["u0"], omega_m=[0.5], note=["y"])
    arguments = ["merge", "all.parquet", "in", "deep/other", "--common-targets"]
    found = _json(arguments, capsys)
    assert found == {
        "catalog": "all.parquet",
        "samples": 21,
        "volumes": 21,
        "stored_bytes": sum(range(1000, 1020)) + 1000,
        "targets": ["omega_m"],
    }
    catalog = Catalog.read("all.parquet")
    assert catalog.entry("t", "full").path == "deep/other/t.zarr"
    assert catalog.entry("s3", "full").path == "in/s3.zarr"
    assert pq.read_table("all.parquet").column("note").to_pylist() == ["x"] * 20 + ["y"]
    assert run(["catalog", *arguments]) == 2
    assert run(["catalog", *arguments, "--overwrite"]) == 0
    assert "all.parquet: 21 samples, 21 volumes" in capsys.readouterr().out


def test_split(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three catalogues beside the first, or with paths of their own elsewhere; universes are whole."""
    found = _json(["split", "in", "--seed", "3"], capsys)
    assert [(part["part"], part["samples"], part["universes"]) for part in found["parts"]] == [
        ("train", 16, 8),
        ("val", 2, 1),
        ("test", 2, 1),
    ]
    assert (found["seed"], found["by"], found["universes_torn"]) == (3, "universe", 0)
    parts = {name: Catalog.read(folder / "in" / f"{name}.parquet") for name in ("train", "val", "test")}
    assert sorted(sample for part in parts.values() for sample in part.samples) == sorted(SAMPLES)
    assert parts["val"].entry(parts["val"].samples[0], "full").path == f"{parts['val'].samples[0]}.zarr"
    (folder / "out").mkdir()
    assert run(["catalog", "split", "in", "--seed", "3", "--out", "out"]) == 0
    printed = capsys.readouterr().out
    assert "80.00%" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert "--allow-outside" in printed
    elsewhere = Catalog.read("out/val.parquet", allow_outside=True)
    assert elsewhere.samples == parts["val"].samples
    assert elsewhere.entry(elsewhere.samples[0], "full").path == f"../in/{elsewhere.samples[0]}.zarr"


@pytest.mark.usefixtures("folder")
def test_split_by_sample_says_what_it_parts(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers of samples are met exactly, and universes on both sides are counted."""
    found = _json(["split", "in", "--train", "17", "--test", "3", "--by", "sample"], capsys)
    train, test = (set(Catalog.read(f"in/{name}.parquet").samples) for name in ("train", "test"))
    torn = {UNIVERSES[int(s[1:])] for s in train} & {UNIVERSES[int(s[1:])] for s in test}
    assert (len(train), len(test), found["universes_torn"]) == (17, 3, len(torn))
    assert torn  # three samples are no whole universes
    assert run(["catalog", "split", "in", "--train", "17", "--test", "3", "--by", "sample", "--overwrite"]) == 0
    assert f"{len(torn)} universes have samples in several parts" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_filter(capsys: pytest.CaptureFixture[str]) -> None:
    """By a condition, by a list, and by both."""
    Path("ids.txt").write_text("s1\ns18\n\n")
    found = _json(["filter", "in", "some.parquet", "--where", 'statistics.min < 5 and note == "x"'], capsys)
    assert found["samples"] == 5
    assert Catalog.read("some.parquet").entry("s4", "full").path == "in/s4.zarr"
    assert "note" in pq.read_schema("some.parquet").names
    assert _json(["filter", "in", "two.parquet", "--samples", "ids.txt"], capsys)["samples"] == 2
    arguments = ["filter", "in", "one.parquet", "--samples", "ids.txt", "--where", "omega_m > 0.5"]
    assert _json(arguments, capsys)["samples"] == 1
    assert Catalog.read("one.parquet").samples == ("s18",)


WRONG: dict[str, tuple[list[str], int, str]] = {
    "no catalogue": (["list", "none"], 2, "catalogue none: found no such file"),
    "damaged": (["list", "bad.parquet"], 1, "expected a complete Parquet file"),
    "no condition": (["filter", "in", "out.parquet"], 2, "give --where or --samples"),
    "no row": (["filter", "in", "out.parquet", "--where", "omega_m > 7"], 2, "found no row for which this holds"),
    "wrong condition": (["filter", "in", "out.parquet", "--where", "omega > 7"], 2, "character 1: found 'omega'"),
    "wrong column": (["list", "in", "--columns", "sample,omega"], 2, "found 'omega', expected a column"),
    "no list": (["filter", "in", "out.parquet", "--samples", "none.txt"], 2, "list none.txt: found no such file"),
    "no text": (["filter", "in", "out.parquet", "--samples", "bad.parquet"], 2, "expected one id a line"),
    "other samples": (["filter", "in", "out.parquet", "--samples", "other.txt"], 2, "found no sample 'zzz'"),
    "name taken": (["filter", "in", "bad.parquet", "--where", "omega_m > 0"], 2, "replace it with --overwrite"),
    "folder taken": (["merge", "in", "in"], 2, "replace it with --overwrite"),
    "other targets": (["merge", "out.parquet", "in", "few.parquet"], 2, "--common-targets keeps"),
    "rows differ": (["merge", "out.parquet", "in", "few.parquet", "--common-targets"], 1, "expected equal rows"),
    "no sum": (["split", "in", "--train", "0.8", "--test", "0.1"], 2, "expected fractions that add up to 1"),
    "empty part": (["split", "in", "--train", "0.99", "--test", "0.01"], 2, "part 'test': found nothing left"),
    "not a number": (["split", "in", "--train", "nan", "--test", "0.01"], 2, "Invalid value for '--train'"),
    "another split": (["split", "few.parquet", "--train", "1"], 2, "val.parquet: found a part of another split"),
    "itself": (["split", "val.parquet", "--train", "1", "--overwrite"], 2, "found the name of a part"),
    "no folder": (["split", "in", "--out", "none"], 2, "make the folder first"),
    "a circle": (["split", "circle.parquet"], 1, "found a circle"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_are_one_line_and_write_nothing(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong call ends with 2 and broken data with 1, with one line, and every file is as it was."""
    (folder / "bad.parquet").write_bytes(b"\xff no catalogue")
    (folder / "other.txt").write_text("s1\nzzz\n")
    written(folder / "few.parquet", ["s0"])
    written(folder / "circle.parquet", ["a", "b"], universe=["b", "a"])
    shutil.copy(folder / "few.parquet", folder / "val.parquet")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    arguments, status, words = WRONG[case]
    assert run(["catalog", *arguments]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert words in printed.err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """Help ends with status 0 and shows a call that can be copied."""
    for command in ("list", "merge", "split", "filter"):
        assert run(["catalog", command, "--help"]) == 0
        assert f"Example: voxload catalog {command}" in " ".join(capsys.readouterr().out.split())
