"""Folders and files of this user's alone: what is opened, what is made, and what is refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from voxload.files.private import ForeignError, PrivateFolder, make_folders, open_private

OTHER = 61002
"""A user that needs no account."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_what_is_made_is_this_users_alone(tmp_path: Path) -> None:
    """Folders are 0700, files 0600, and nobody else may write into the folders above, whatever the umask."""
    before = os.umask(0)
    try:
        with PrivateFolder.make(tmp_path / "a" / "b" / "c") as folder, folder.folder("d", make=True) as inner:
            os.close(inner.file("x", os.O_WRONLY | os.O_CREAT | os.O_EXCL)[0])
            assert inner.names() == ["x"]
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a", *(tmp_path / "a").rglob("*"))}
    assert modes == {"a": 0o755, "b": 0o755, "c": 0o700, "d": 0o700, "x": 0o600}


def test_names_are_those_of_the_folder_that_was_opened(tmp_path: Path) -> None:
    """Whatever is put under its path later."""
    with PrivateFolder.make(tmp_path / "a") as folder, PrivateFolder.make(tmp_path / "b") as other:
        (tmp_path / "b" / "x").write_text("forged")
        (tmp_path / "a").rename(tmp_path / "away")
        (tmp_path / "b").rename(tmp_path / "a")
        assert folder.status("x") is None
        assert other.status("x") is not None
        with pytest.raises(FileNotFoundError):
            folder.file("x", os.O_RDONLY)


def _mode(path: Path) -> None:
    path.write_text("")
    path.chmod(0o620)


def _owner(path: Path) -> None:
    path.write_text("")
    os.chown(path, OTHER, -1)


def _names(path: Path) -> None:
    path.with_name("other").write_text("")
    os.link(path.with_name("other"), path)


def _link(path: Path) -> None:
    path.with_name("other").write_text("")
    path.symlink_to("other")


def _device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero: read, it never ends


@pytest.mark.parametrize(
    ("lay", "words"),
    [
        (_mode, "mode 620"),
        (_names, "a file with 2 names"),
        (_link, "symbolic links are not followed"),
        (os.mkfifo, "a FIFO"),
        (os.mkdir, "a directory"),
        pytest.param(_owner, f"a file of user {OTHER}", marks=as_root),
        pytest.param(_device, "a device", marks=as_root),
    ],
)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREAT])
def test_what_is_no_file_of_this_users(tmp_path: Path, lay: Callable[[Path], None], words: str, flags: int) -> None:
    """Is said to be what it is, is not waited for, and stays as it is."""
    tmp_path.chmod(0o700)
    lay(tmp_path / "x")
    before = (tmp_path / "x").lstat()
    with PrivateFolder.open(tmp_path) as folder:
        with pytest.raises(ForeignError, match=words):
            folder.file("x", flags)
        assert folder.status("x") is None
    with pytest.raises(ForeignError, match=words):
        open_private(tmp_path / "x", flags)
    after = (tmp_path / "x").lstat()
    assert (before.st_mode, before.st_size, before.st_mtime_ns) == (after.st_mode, after.st_size, after.st_mtime_ns)


@as_root
def test_links_of_others_lead_nowhere(tmp_path: Path) -> None:
    """A link at the end of a path is followed where this user or root made it."""
    make_folders(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    PrivateFolder.open(tmp_path / "link").close()
    os.chown(tmp_path / "link", OTHER, -1, follow_symlinks=False)
    with pytest.raises(ForeignError, match="symbolic link"):
        PrivateFolder.open(tmp_path / "link")
    with PrivateFolder.open(tmp_path / "real") as folder:
        (tmp_path / "real" / "inner").symlink_to(tmp_path)
        with pytest.raises(ForeignError, match="symbolic link"):
            folder.folder("inner")
