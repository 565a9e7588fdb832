"""KeptCode: the folder in which numba keeps compiled code, if nobody else can have put something there.

numba unpickles what it finds, and runs it. So it is taken only from those whose code runs in this process anyway:

1. Folder and files belong to the effective user, to root, or to the owner of the source file.
2. Others may write there only where they may write the source, too: into ``__pycache__`` as into the folder around it,
   from which Python takes its own compiled code.
3. What is looked at is what is used: numba gets the folder by the descriptor that was checked.

A folder outside of the source tree (``NUMBA_CACHE_DIR``, ``~/.cache/numba``) that is still empty is closed to others,
and files written here lose the right of others to write: an umask may have given them both.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Self

from voxload.private import OTHERS_WRITE, ForeignError


class KeptCode:
    """The files of one function in a folder of compiled code, held open; for one thread.

    Parameters
    ----------
    path
        The folder.
    source
        The file of the function.
    prefix
        How the names of its files begin.

    Raises
    ------
    ForeignError
        Where somebody may have written there whose code does not run anyway.
    OSError
        Where the system refuses it.
    """

    def __init__(self, path: Path, source: Path, prefix: str) -> None:
        self._path, self._prefix = path, prefix
        self._is_beside = path.parent == source.parent
        around = source.parent.stat()
        self._owners = {0, os.geteuid(), source.stat().st_uid}
        self._writers = around.st_mode & OTHERS_WRITE if self._is_beside else 0
        self._group, self._is_closed = around.st_gid, False
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> str:
        """A path that leads to the very folder that was checked, whatever has its name by now; until `close`."""
        return f"/proc/self/fd/{self._descriptor}"

    def seal(self) -> None:
        """Take the right to write the files from others, so that they are believed the next time."""
        for name, status in self._files():
            if self._excess(status) and status.st_uid == os.geteuid():
                with suppress(FileNotFoundError):
                    os.chmod(name, status.st_mode & ~OTHERS_WRITE & 0o7777, dir_fd=self._descriptor)

    def close(self) -> None:
        """Release the folder."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        status = os.fstat(self._descriptor)
        if not self._is_beside and status.st_uid == os.geteuid() and self._is_empty():
            os.fchmod(self._descriptor, stat.S_IRWXU)
            status = os.fstat(self._descriptor)
        self._refuse(status, self._path)
        if not status.st_mode & (stat.S_IXGRP | stat.S_IXOTH):
            self._writers, self._is_closed = OTHERS_WRITE, True  # nobody else reaches a file, whatever its mode
        for name, found in self._files():
            self._refuse(found, self._path / name)

    def _is_empty(self) -> bool:
        return not os.listdir(self._descriptor)  # noqa: PTH208 - pathlib has no descriptors

    def _files(self) -> list[tuple[str, os.stat_result]]:
        names = os.listdir(self._descriptor)  # noqa: PTH208 - as above
        found = []
        for name in names:
            if name.startswith(self._prefix):
                with suppress(FileNotFoundError):  # another process has just given it its name
                    found.append((name, os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)))
        return found

    def _excess(self, status: os.stat_result) -> int:
        """Return the rights to write that others have, and not of the source."""
        same = self._writers if self._is_closed or status.st_gid == self._group else self._writers & ~stat.S_IWGRP
        return status.st_mode & OTHERS_WRITE & ~same

    def _refuse(self, status: os.stat_result, path: Path) -> None:
        mode = status.st_mode
        is_kind = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
        if status.st_uid not in self._owners or not is_kind or self._excess(status):
            raise ForeignError(
                f"compiled code in {path}",
                found=f"user {status.st_uid}, {stat.filemode(mode)}",
                expected=f"a file or folder that nobody may write but users {sorted(self._owners)}",
                remedy="remove it, or say another folder by NUMBA_CACHE_DIR",
            )
