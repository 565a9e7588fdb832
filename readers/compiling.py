"""Compiling: kernels by numba, kept in files on disk that nobody else can have put there.

KeptCode: the folder in which numba keeps compiled code, if nobody else can have put something there. numba unpickles
what it finds, and runs it. So it is taken only from those whose code runs in this process anyway:

1. Folder and files belong to the effective user, to root, or to the owner of the source file.
2. Others may write there only where they may write the source, too: into ``__pycache__`` as into the folder around it,
   from which Python takes its own compiled code.
3. What is looked at is what is used: numba gets the folder by the descriptor that was checked.

A folder outside of the source tree (``NUMBA_CACHE_DIR``, ``~/.cache/numba``) that is still empty is closed to others,
and files written here lose the right of others to write: an umask may have given them both.

numba gives a function one index file, which names a data file for each signature, and writes both without a lock. Of
two processes that compile two signatures at the same moment, one stores its code under the other's name, and every
process after them ends with "no matching definition". Here each signature has an index of its own: whoever writes it
writes the same code. Its name tells what the code was made from, too, as numba sees changes of the file that holds the
function, but not of the parts in other files that were compiled into it.

What is kept is code, and runs: `KeptCode` says whose.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, Self, TypeVar

import numba
import numpy as np
from numba import types, uint8, uint64

from voxload.files.private import OTHERS_WRITE, ForeignError
from voxload.text import shown

BYTES = types.Array(uint8, 1, "C", readonly=True)
TABLE = types.Array(uint64, 2, "C")
NUMBERS = types.Array(uint64, 1, "C")


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


F = TypeVar("F", bound=Callable[..., Any])
_NOT_KEPT = (RuntimeError, OSError, EOFError, pickle.UnpicklingError)
"""No folder can be written, there is no room, or a node that went down left half a file: every process compiles."""


def compiled(*arguments: Any, returns: Any = types.void) -> Callable[[F], F]:
    """Compile for these types now, or take the code from the cache on disk; safe in many processes at once."""

    def compile_(function: F) -> F:
        jit: Any = numba.njit
        signature = returns(*arguments)
        try:
            found: F = _kept(_named(function, signature), signature)
        except _NOT_KEPT as error:
            if isinstance(error, ForeignError):
                _tell_once(str(error))
            found = jit([signature], nogil=True, boundscheck=False)(function)
        return found

    return compile_


def _kept(named: FunctionType, signature: Any) -> Any:
    """Return the code from the cache on disk, where nobody else can have put it, or compile it and keep it there."""
    jit: Any = numba.njit
    found = jit(nogil=True, boundscheck=False, cache=True)(named)
    source = Path(named.__code__.co_filename)
    prefix = f"{source.stem}.{named.__qualname__}".replace("<", "").replace(">", "")  # as numba names files
    with KeptCode(Path(found.stats.cache_path), source, prefix) as code:
        # numba takes no descriptor: the path of its two files is set where it keeps that.
        files = found._cache._cache_file  # noqa: SLF001 - as above
        files._cache_path, files._index_path = code.path, f"{code.path}/{files._index_name}"  # noqa: SLF001 - as above
        found.compile(signature)
        code.seal()
    found.disable_compile()
    return found


@cache
def _tell_once(reason: str) -> None:
    what = f"{reason}; every process compiles for itself, which takes seconds"
    warnings.warn(shown(what), RuntimeWarning, stacklevel=4)


def part(function: F) -> F:
    """Compile a function as a part of the kernels that call it."""
    jit: Any = numba.njit
    inlined: F = jit(nogil=True, boundscheck=False)(function)
    return inlined


def _named(function: Any, signature: Any) -> FunctionType:
    """Return the function under a name that no other signature and no other source has; numba names files by it."""
    digest = hashlib.sha256(str(signature).encode())
    for line in sorted(set(_origins(function, set()))):
        digest.update(line.encode())
    found = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    found.__doc__, found.__kwdefaults__ = function.__doc__, function.__kwdefaults__
    found.__qualname__ = f"{function.__qualname__}_{digest.hexdigest()[:16]}"
    return found


def _origins(function: Any, seen: set[Any]) -> Iterator[str]:
    """Yield what code is made from: files of the function and its parts, and values that are compiled as constants."""
    seen.add(function)
    yield _digest(Path(function.__code__.co_filename))
    used = inspect.getclosurevars(function)
    for name, value in (*used.globals.items(), *used.nonlocals.items()):
        module = sys.modules.get(getattr(value, "__module__", None) or "")
        called = getattr(value, "py_func", None)
        if called is not None and called not in seen:
            yield from _origins(called, seen)
        elif isinstance(value, bool | int | float | str | tuple | np.generic):
            yield f"{name} = {value!r}"
        elif module is not None and module.__name__.partition(".")[0] == function.__module__.partition(".")[0]:
            yield _digest(Path(str(module.__file__)))


@cache
def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
