"""Page cache: what of a file the system holds in memory, asked with mincore, and how to fill or empty it."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_CHUNK = 1 << 24


def resident(paths: Iterable[Path]) -> float:
    """Return the share of the pages of all `paths` that are in memory, from 0 to 1."""
    held = pages = 0
    for path in paths:
        size = path.stat().st_size
        if size:
            flags = _flags(path, size)
            held += int(np.count_nonzero(flags & 1))
            pages += flags.size
    return held / pages if pages else 1.0


def _flags(path: Path, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return one byte a page; its lowest bit says whether the page is in memory (mincore(2))."""
    flags = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        start = np.frombuffer(view, np.uint8).ctypes.data
        if _libc.mincore(start, size, flags.ctypes.data):
            raise OSError(ctypes.get_errno(), f"mincore of {path}")
    return flags


def warm(paths: Iterable[Path]) -> None:
    """Read every byte of `paths` once."""
    buffer = bytearray(_CHUNK)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def drop(paths: Iterable[Path]) -> None:
    """Ask the system to forget the pages of `paths`; pages that a process has mapped stay."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
