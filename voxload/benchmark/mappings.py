"""Mappings: files that this process maps, made to let go of their pages; nobody can drop a page that is mapped."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
Identity = tuple[int, int]
"""Device and number of a file."""


def let_go(files: Iterable[str | os.PathLike[str]]) -> None:
    """Let this process's shared maps of `files` let go of their pages (madvise(2), MADV_DONTNEED).

    The maps stay valid: what is touched next is read again. To be called in every process that maps the files, before
    their pages are dropped; locked pages stay. Safe while other threads read.
    """
    mapped = list(_mapped())
    if not mapped:
        return
    wanted = {identity for file in files if (identity := _identity(file)) is not None}
    for start, stop, identity in mapped:
        if identity in wanted:
            _libc.madvise(start, stop - start, mmap.MADV_DONTNEED)


def _mapped() -> Iterator[tuple[int, int, Identity]]:
    """Yield the addresses and the file of each shared map of this process; private ones may hold what no file has."""
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        words = line.split(maxsplit=5)
        if len(words) < 6 or words[1][3] != "s":
            continue
        identity = _identity(words[5])
        if identity is not None:
            start, stop = (int(word, 16) for word in words[0].split("-"))
            yield start, stop, identity


def _identity(file: str | os.PathLike[str]) -> Identity | None:
    """Return what names a file by whatever path; None where there is none."""
    try:
        status = os.stat(file)  # noqa: PTH116 - strings: there may be many
    except OSError:
        return None
    return status.st_dev, status.st_ino
