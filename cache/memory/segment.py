"""Segment: a named file in memory that goes with its process, no larger than the machine allows.

1. It appears under its name when it is whole: allocated to the last byte, locked and with its head written. A process
   killed before leaves nothing.
2. Its bytes are allocated when it is made, so that a full file system is an error then and no SIGBUS later.
3. Its owner holds an flock on it. The kernel releases that with the last process that has it; the next owner of any
   segment of the same user removes those that nobody holds.
4. Only its user may open it, whatever the umask, and nobody can foresee its name. A name that is taken is left to whom
   it belongs.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import weakref
from contextlib import suppress
from pathlib import Path

from voxload.cache.memory.pages import SharedPages
from voxload.errors import StorageError, UsageError
from voxload.files.memory_left import memory_left
from voxload.files.private import open_private


def allowed_bytes(folder: Path) -> int:
    """Return the bytes that files in the memory file system of `folder` may still take.

    The least of what the file system, the kernel and every memory cgroup above this process allow: a file system is
    often larger than what a container may use, and the kernel ends who goes beyond that.
    """
    system = os.statvfs(folder)
    return max(0, min(system.f_bavail * system.f_frsize, memory_left()))


SHARED = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is on Linux
"""The memory file system of a node."""
PREFIX = "voxload-tier-"
"""How names of segments begin."""
_UNFORESEEN = 16
"""Random bytes of a name."""
_NAMES = 4
"""Attempts: two are one too many for chance."""
_JOB = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class Segment(SharedPages):
    """A file of `size` bytes in `folder`, mapped, private to its user (0600), removed by `close` or with this object.

    Parameters
    ----------
    name
        Part of the file's name; a random part makes it unique.
    head
        First bytes.

    Raises
    ------
    UsageError
        Where the memory file system, the machine or a cgroup has no such room.
    StorageError
        Where the file system refuses the file, or its name is taken again and again.
    """

    def __init__(self, name: str, *, size: int, head: bytes, folder: Path = SHARED) -> None:
        if not _JOB.fullmatch(name):
            raise UsageError(
                "job", found=repr(name), expected="1 to 100 letters, digits, points, dashes or underscores"
            )
        remove_dead(folder)
        descriptor = _allocate(folder, size)
        try:
            super().__init__(descriptor, size, head)
            self.path = _link(descriptor, folder, f"{PREFIX}{name}")
        except BaseException:
            os.close(descriptor)
            raise
        self._finaliser = weakref.finalize(self, _remove, self.path, descriptor, os.getpid())

    def close(self) -> None:
        """Remove the file and its mapping."""
        self._finaliser()
        super().close()


def _allocate(folder: Path, size: int) -> int:
    """Return a locked file without a name."""
    allowed = allowed_bytes(folder)
    refusal = UsageError(
        f"memory tier in {folder}",
        found=f"{size} bytes projected",
        expected=f"at most {allowed} bytes allowed",
        remedy=f"lower the tier's capacity, or enlarge {folder} (Docker: --shm-size) or the memory limit",
    )
    if size > allowed:
        raise refusal
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)  # an odd umask may have taken rights from its user
    except OSError as error:
        raise StorageError(
            f"memory tier in {folder}",
            found=os.strerror(error.errno or 0),
            remedy="make it writable, or use no memory tier",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.posix_fallocate(descriptor, 0, size)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError):
            raise refusal from error
        raise
    return descriptor


def _link(descriptor: int, folder: Path, stem: str) -> str:
    """Give a file a name that nobody else can foresee, and return its path. A name that is taken stays as it is."""
    # With a folder, os.link calls linkat(2), which follows the link in /proc to a file without a name.
    where = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(_NAMES):
            path = str(folder / f"{stem}-{secrets.token_hex(_UNFORESEEN)}")
            with suppress(FileExistsError):
                os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=where, follow_symlinks=True)
                return path
    except OSError as error:
        raise StorageError(
            f"memory tier in {folder}", found=os.strerror(error.errno or 0), remedy="use no memory tier"
        ) from error
    finally:
        os.close(where)
    raise StorageError(
        f"memory tier in {folder}",
        found=f"{_NAMES} random names that begin with {stem} all taken",
        expected="a name that nobody has",
        remedy="find out who makes files there, or use no memory tier",
    )


def _remove(path: str, descriptor: int, owner: int) -> None:
    if os.getpid() == owner:  # a fork has the object too, but not the file
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - may run while the interpreter ends
    os.close(descriptor)


def remove_dead(folder: Path = SHARED) -> None:
    """Remove the segments of this user that no process holds any more; root's are not everybody's."""
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, or just removed by its owner
            descriptor, status = open_private(path, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(status, path.lstat()):
                    path.unlink()
            finally:
                os.close(descriptor)
