"""Places to write to are tried before the work: hours of measuring must not end in a folder that is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from voxload.cli.main import run
from voxload.cli.options import check_file, check_folder
from voxload.errors import StorageError, UsageError

COMMANDS = {
    "bench run": (["bench", "run", "nothing", "--output"], "--output"),
    "bench run's table": (["bench", "run", "nothing", "--csv"], "--csv"),
    "bench report": (["bench", "report", "nothing.json", "--output"], "--output"),
    "info": (["info", "nothing", "--plot"], "--plot"),
    "simulate": (["simulate", "--samples", "8", "--sample-bytes", "1MB", "--plot"], "--plot"),
    "train": (["train", "nothing", "--prometheus"], "--prometheus"),
}
FOLDERS = {
    "bench report's plots": (["bench", "report", "nothing.json", "--png"], "--png"),
    "bench sweep": (["bench", "sweep", "nothing", "--folder"], "--folder"),
    "train": (["train", "nothing", "--output"], "--output"),
    "train's logs": (["train", "nothing", "--tensorboard"], "--tensorboard"),
    "demo": (["demo", "--output"], "--output"),
    "demo's universes": (["demo", "--folder"], "--folder"),
    "convert": (["convert", "nothing"], "folder for the samples"),
    "infer": (["infer", "nothing", "--checkpoint", "nothing", "--output"], "--output"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_in_no_folder_is_refused_first(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before what is to be read is looked for, which is not there either."""
    monkeypatch.chdir(tmp_path)
    words, option = COMMANDS[name]
    assert run([*words, str(tmp_path / "away" / "file")]) == 2
    printed = capsys.readouterr().err
    assert f"voxload: {option}: found no folder" in printed
    assert printed.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_is_a_file_is_refused_first(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file stays as it is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    words, option = FOLDERS[name]
    assert run([*words, "file"]) == 2
    assert f"{option}: found {tmp_path / 'file'}, which is no folder" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


def test_places_that_can_be_written_to_pass(tmp_path: Path) -> None:
    """Folders on the way are made later, by whoever writes; a file's folder must be there."""
    check_file("--output", None)
    check_file("--output", tmp_path / "new.json")
    check_folder("--output", tmp_path / "a" / "b")
    with pytest.raises(UsageError, match="a folder, expected a file's name"):
        check_file("--output", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_closed_folder_is_refused(tmp_path: Path) -> None:
    """No permission is the storage's word, not the caller's mistake."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(StorageError, match="no permission to write"):
        check_file("--output", closed / "file")
    with pytest.raises(StorageError, match="no permission to write"):
        check_folder("--output", closed / "folder")
