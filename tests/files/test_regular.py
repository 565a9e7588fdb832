"""Regular files: pipes, devices and sockets are told apart before anything waits for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from voxload.errors import DataError, UsageError
from voxload.files.limits import DOCUMENT
from voxload.files.regular import check_regular, open_regular, parse_json, read_document


def test_a_file_is_read_and_closed(tmp_path: Path) -> None:
    """It is an ordinary file of Python's."""
    (tmp_path / "a").write_bytes(b"abc")
    with open_regular(tmp_path / "a") as file:
        assert file.read() == b"abc"
    assert file.closed
    check_regular(tmp_path / "a")
    check_regular(tmp_path)
    check_regular(tmp_path / "none")


def test_a_link_to_a_pipe_is_a_pipe(tmp_path: Path) -> None:
    """What is opened is looked at, not what it is called."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for look in (check_regular, open_regular, read_document):
        with pytest.raises(UsageError, match="found a named pipe, expected a file or folder"):
            look(tmp_path / "link")


def test_a_folder_and_a_missing_file_are_as_open_has_them(tmp_path: Path) -> None:
    """They are for whoever asks to judge."""
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


def test_a_document_is_bounded_in_length_and_depth(tmp_path: Path) -> None:
    """A sparse file is as long as it says and takes nothing on disk."""
    (tmp_path / "a").touch()
    os.truncate(tmp_path / "a", DOCUMENT.default + 1)
    with pytest.raises(DataError, match=DOCUMENT.variable):
        read_document(tmp_path / "a")
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 10**5)
