"""PrivateFolder: a folder that this user alone writes into, and the files in it, all by descriptors.

Rules, for whatever is believed because this user wrote it:
1. Folders and files belong to the effective user, and neither group nor others may write into them. Those of root are
   no exception: what root leaves there, this user cannot lock or replace; and root needs no forged file.
2. What is looked at is what is used: folders are opened once, and all in them is reached from their descriptors. Who
   may rename a folder above puts another one under its name, and not into a descriptor.
3. A file is a regular one with one name, opened without following links and without waiting: a FIFO does not stop
   anyone, and a second name may belong to a file that is not to be written into.
4. What is not so is left as it is: neither read, nor written, nor removed.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Self

from voxload.errors import StorageError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
"""Bits of a mode."""
_NAME_ANOTHER = "name a folder of your own"
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link (symbolic links are not followed here)",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_NOT_OPENED = (errno.ELOOP, errno.ENXIO, errno.ENOTDIR, errno.EISDIR, errno.EACCES)
"""What the system says of links, of FIFOs and sockets, of files and folders in each other's place, of other users'."""


class ForeignError(StorageError):
    """What is there is not this user's alone, and nothing of it is believed."""

    kind = "a folder"
    """What it is, without its name."""


class PrivateFolder:
    """A folder of this user's alone, held open; safe to use from many threads at once.

    Every method may raise OSError, and `ForeignError` for what is not this user's alone.

    Parameters
    ----------
    descriptor
        Of the folder; checked here, and closed with this, or at once where it is refused.
    path
        Its name, for messages.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor, self.path = descriptor, path
        try:
            _check(os.fstat(descriptor), path)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a folder by its path. Links on the way are followed, but for one at the end that somebody else made."""
        if is_others_link(path):
            raise _foreign(str(path), path.lstat(), "a folder of this user's", remedy=_NAME_ANOTHER)
        return cls(os.open(path, _FOLDER), path)

    @classmethod
    def make(cls, path: Path) -> Self:
        """Open a folder by its path, and make it, for this user alone, where it is not there."""
        make_folders(path)
        return cls.open(path)

    def folder(self, name: str, *, make: bool = False) -> PrivateFolder:
        """Open a folder in this one; `make` it where it is not there."""
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self.descriptor)
        try:
            descriptor = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.descriptor)
        except OSError as error:
            raise _told(name, error, "a folder of this user's", folder=self) from error
        return PrivateFolder(descriptor, self.path / name)

    def file(self, name: str, flags: int) -> tuple[int, os.stat_result]:
        """Open a file as `open_private` does; `name` may lead through folders that were opened before."""
        return open_private(name, flags, folder=self)

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of a file of this user's; None where there is nothing, or something else."""
        try:
            status = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status if is_private(status) else None

    def names(self) -> list[str]:
        """Return the names of all that is in it; one thread at a time."""
        return os.listdir(self.descriptor)  # noqa: PTH208 - pathlib has no descriptors

    def has_folder(self, name: str) -> bool:
        """Tell whether a folder is there, without a look at whose it is."""
        try:
            return stat.S_ISDIR(os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode)
        except OSError:
            return False

    def unlink(self, name: str) -> None:
        """Remove a file, or a link and not what it leads to."""
        os.unlink(name, dir_fd=self.descriptor)

    def rename(self, name: str, new: str, folder: PrivateFolder) -> None:
        """Give a file a new name in `folder`, in place of what has that."""
        os.rename(name, new, src_dir_fd=self.descriptor, dst_dir_fd=folder.descriptor)

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_private(path: str | Path, flags: int, *, folder: PrivateFolder | None = None) -> tuple[int, os.stat_result]:
    """Open, or make (0600), a file that this user alone may write; return descriptor and status.

    `path` counts from `folder`. Never waits, and follows no link at its end. Raises OSError where the system refuses,
    ForeignError where something else is there.
    """
    try:
        descriptor = os.open(path, flags | _FILE, 0o600, dir_fd=None if folder is None else folder.descriptor)
    except OSError as error:
        raise _told(path, error, "a file of this user's", folder=folder) from error
    status = os.fstat(descriptor)
    if is_private(status):
        return descriptor, status
    os.close(descriptor)
    raise _foreign(_shown(path, folder), status, "a file that this user alone may write")


def is_private(status: os.stat_result) -> bool:
    """Tell whether a status is that of a regular file with one name that this user alone may write."""
    mode = status.st_mode
    return stat.S_ISREG(mode) and status.st_uid == os.geteuid() and not mode & OTHERS_WRITE and status.st_nlink <= 1


def is_others_link(path: Path) -> bool:
    """Tell whether a path is a link that neither this user nor root made: it would choose where its user writes."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid())


def make_folders(path: Path) -> None:
    """Make a folder for this user alone, and those above that are not there, into which nobody else may write."""
    for parent in reversed(path.parents):
        if not parent.exists():
            parent.mkdir(mode=0o755, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def _foreign(name: str, status: os.stat_result, expected: str, *, remedy: str = "remove it") -> ForeignError:
    mode = status.st_mode
    kind = _KINDS.get(stat.S_IFMT(mode)) or (
        "a file" if status.st_nlink <= 1 else f"a file with {status.st_nlink} names"
    )
    found = kind if stat.S_ISLNK(mode) else f"{kind} of user {status.st_uid}, mode {stat.S_IMODE(mode):o}"
    error = ForeignError(name, found=found, expected=expected, remedy=remedy)
    error.kind = kind
    return error


def _check(status: os.stat_result, path: Path) -> None:
    """Refuse a folder that is not this user's alone."""
    if status.st_uid != os.geteuid():
        raise _foreign(str(path), status, f"one of this user, {os.geteuid()}", remedy=_NAME_ANOTHER)
    if status.st_mode & OTHERS_WRITE:
        raise ForeignError(
            str(path),
            found=f"mode {stat.S_IMODE(status.st_mode):o}",
            expected="a folder that nobody else may write into",
            remedy=f"chmod go-w {path}",
        )


def _told(path: str | Path, error: OSError, expected: str, *, folder: PrivateFolder | None) -> OSError:
    """Return the error to raise: what has the wrong kind, or is another user's, is said to be that, by name."""
    if error.errno not in _NOT_OPENED:
        return error
    try:
        status = os.stat(path, dir_fd=None if folder is None else folder.descriptor, follow_symlinks=False)
    except OSError:
        return error
    is_refused = error.errno == errno.EACCES and status.st_uid == os.geteuid()
    return error if is_refused else _foreign(_shown(path, folder), status, expected)


def _shown(path: str | Path, folder: PrivateFolder | None) -> str:
    return str(path if folder is None else folder.path / path)
