"""A file that keeps its first failure."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from voxload.convert.storage.hdf5 import DeferredErrorFile


def test_without_failure_it_is_a_file(tmp_path: Path) -> None:
    """Writes, moves, reads and cuts do what a file does."""
    with DeferredErrorFile(tmp_path / "x") as file:
        assert file.write(b"hello world") == 11
        file.seek(6)
        assert file.read(5) == b"world"
        assert file.read(5) == b""
        file.truncate(5)
        file.check()
    assert (tmp_path / "x").read_bytes() == b"hello"


def test_first_failure_is_kept() -> None:
    """A device that is always full fails once for the caller and never for the library above."""
    with DeferredErrorFile(Path("/dev/full")) as file:
        assert file.write(b"hello") == 5
        assert file.write(b"again") == 5
        assert file.truncate(3) == 3
        for _ in range(2):
            with pytest.raises(OSError, match="No space left") as caught:
                file.check()
            assert caught.value.errno == errno.ENOSPC
