"""Records of a conversion: whose are believed, and what stands in their place and must do no harm."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from voxload.convert import ConvertOptions, convert
from voxload.convert.write.checksums import SampleChecksums
from voxload.convert.write.ledger import Ledger
from voxload.convert.write.lock import LOCK_NAME, locked
from voxload.convert.write.writer import ledger_name, temporary_name
from voxload.errors import StorageError
from voxload.files.private import ForeignError
from voxload.files.records import is_own_folder, open_record, read_record, write_record

OTHER = 61002
"""A user that needs no account."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")

pytestmark = pytest.mark.usefixtures("no_leaks")


def second_name(path: Path) -> None:
    """Give a precious file a second name."""
    precious = path.with_name("precious")
    precious.write_text("precious")
    os.link(precious, path)


def link(path: Path) -> None:
    """Lead to a precious file."""
    path.with_name("precious").write_text("precious")
    path.symlink_to(path.with_name("precious"))


def others(path: Path) -> None:
    """Make a file that everyone may write and another user owns."""
    path.write_text("precious")
    path.chmod(0o666)
    os.chown(path, OTHER, OTHER)


PLACES = [second_name, link, os.mkfifo, pytest.param(others, marks=as_root)]


@pytest.mark.parametrize("lay", PLACES)
def test_what_is_no_record_is_neither_believed_nor_written(tmp_path: Path, lay: Callable[[Path], None]) -> None:
    """Second names, links, FIFOs and files of another user: no lock, no progress, no mark; nothing waits or changes."""
    path = tmp_path / LOCK_NAME
    lay(path)
    with pytest.raises(StorageError, match=LOCK_NAME if lay is not link else str(tmp_path)), locked(tmp_path):
        pass
    with pytest.raises(OSError, match=r"record|regular file|symbolic"):
        write_record(path, "done")
    if lay is not link:
        assert read_record(path) is None
        with closing(Ledger(path)) as ledger:
            assert ledger.resume({"of": "x"}) is None
    for kept in (tmp_path / "precious", path):
        assert not kept.is_file() or kept.read_text() == "precious"


def test_records_are_made_for_no_one_to_run(tmp_path: Path) -> None:
    """What is made is a plain file, and says what was written last."""
    write_record(tmp_path / "x", "a longer text")
    write_record(tmp_path / "x", "text")
    assert read_record(tmp_path / "x") == "text"
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        ledger.start({"of": "x"})
    assert (tmp_path / "ledger").stat().st_mode & 0o133 == 0
    with pytest.raises(FileNotFoundError):
        open_record(tmp_path / "none", os.O_RDONLY)


@as_root
def test_a_record_of_the_folders_owner_is_believed(tmp_path: Path) -> None:
    """Who owns the folder may put other volumes there anyway; who only may write files there may not."""
    write_record(tmp_path / "x", "text")
    (tmp_path / "volume").mkdir()
    for owner, is_believed in ((OTHER, False), (0, True)):
        os.chown(tmp_path, 0 if owner else OTHER, -1)
        for path in (tmp_path / "x", tmp_path / "volume"):
            os.chown(path, OTHER, OTHER)
        assert (read_record(tmp_path / "x") == "text") is is_believed
        assert is_own_folder(tmp_path / "volume") is is_believed
    os.chown(tmp_path, 0, 0)
    with pytest.raises(ForeignError, match=f"user {OTHER}"):
        open_record(tmp_path / "x", os.O_RDWR)


class StopError(Exception):
    """Ends a conversion half-way."""


@as_root
@pytest.mark.parametrize("is_forged", [False, True])
def test_a_conversion_does_not_continue_another_users(
    tmp_path: Path, converted: Any, monkeypatch: pytest.MonkeyPatch, *, is_forged: bool
) -> None:
    """A record of stored chunks, by someone else, with garbage in their place: the volume is converted anew."""
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    volume = np.arange(32**3, dtype="<i4").reshape(32, 32, 32)
    monkeypatch.setattr("voxload.convert.plan.tiles.LIBRARY_BYTES", 0)  # so that a small volume has many slabs
    np.save(source / "x.npy", volume)
    options = ConvertOptions(chunks=(2, 32, 32), workers=1, max_memory=2**16)
    steps: list[object] = []

    def stop(progress: object) -> None:
        steps.append(progress)
        if len(steps) == 5:
            raise StopError

    with pytest.raises(StopError):
        convert(source, out, options=options, progress=stop)
    unfinished, record = temporary_name(out / "x.zarr"), ledger_name(out / "x.zarr")
    assert len(record.read_text().splitlines()) > 1
    if is_forged:
        for path in (record, unfinished, *unfinished.rglob("*")):
            os.chown(path, OTHER, OTHER)
            if path.parent != out and path.is_file() and path.name != "zarr.json":
                path.write_bytes(bytes(path.stat().st_size))
    report = convert(source, out, options=options)
    assert (report.bytes_resumed == 0) is is_forged
    assert np.array_equal(converted(report.catalog, "x")[0], volume)


@as_root
def test_checksums_that_another_user_laid_are_none(tmp_path: Path) -> None:
    """Neither a file of checksums of someone else's nor a FIFO is read."""
    path = tmp_path / "catalog.checksums.parquet"
    for lay in (others, os.mkfifo):
        lay(path)
        assert SampleChecksums(tmp_path)._file is None
        path.unlink()
