"""Storage: how fast a folder's file system is read past the page cache, memory copied, and chunks decoded, here.

What `voxload.prefetch.simulate` needs to know of a machine. Threads stand for ranks: system calls, copies and decoders
hold no lock of Python's.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import zarr
from zarr.codecs import BloscCodec

from voxload.errors import UsageError
from voxload.plan.platform.calibration import MeasuredStorage
from voxload.readers import Location, forget_chunks, open_reader
from voxload.units import format_bytes

_FILE, _PIECE, _PAGE = 128 * 2**20, 2**22, 4096
"""Bytes of the file that each reader has, of a request, and of the smallest one."""
_COPIED = 2**26
"""Bytes that are copied at a time: more than caches hold."""
_REPEATS, _PAGES = 3, 32
_DECODED = (1, 128, 128, 128)
"""Extents of the volume that is decoded."""


def measure_storage(folder: str | os.PathLike[str], ranks: int) -> MeasuredStorage:
    """Measure with a file for each of twice as many readers as ranks, which are gone afterwards.

    Raises
    ------
    UsageError
        When there is no such folder, or its file system knows no direct reads or has no room for the files.
    """
    if not Path(folder).is_dir():
        raise UsageError(
            f"--storage {folder}", found="no such folder", expected="one on the storage that samples are read from"
        )
    readers = sorted({1, ranks, 2 * ranks})
    with tempfile.TemporaryDirectory(prefix="voxload-", dir=folder) as name:
        files = _written(Path(name), readers[-1])
        reads = tuple((count, _rate(count, _FILE, [_Reader(path) for path in files])) for count in readers)
        latency = _latency(files[0])
        decoding = _decoding(Path(name) / "volume.zarr")
    copies = tuple((count, _rate(count, _COPIED, [_Copier() for _ in range(count)])) for count in readers)
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    return MeasuredStorage(latency, reads, copies, decoding, free // 2)


def _written(folder: Path, count: int) -> list[Path]:
    free = shutil.disk_usage(folder).free
    if free < 2 * count * _FILE:
        raise UsageError(
            f"--storage {folder.parent}",
            found=f"{format_bytes(free)} free",
            expected=f"{format_bytes(2 * count * _FILE)}",
            remedy="name another folder",
        )
    # What repeats within a file, a file system might store once.
    found, draw = [], np.random.default_rng(0)
    for number in range(count):
        path = folder / f"{number}.bin"
        with path.open("wb", buffering=0) as file:
            for _ in range(_FILE // _PIECE):
                file.write(draw.bytes(_PIECE))
            os.fsync(file.fileno())
        found.append(path)
    return found


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise UsageError(
            f"--storage {path.parent.parent}",
            found="a file system without direct reads",
            expected="one whose reads can be told from those of memory",
            remedy="name a folder on the storage that samples are read from",
        ) from error


class _Reader:
    """Reads a file from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._memory = mmap.mmap(-1, _PIECE)  # direct reads want whole pages

    def __call__(self) -> None:
        descriptor = _opened(self._path)
        try:
            for offset in range(0, _FILE, _PIECE):
                if os.preadv(descriptor, [self._memory], offset) != _PIECE:
                    raise UsageError(f"{self._path}", found="a file that ends too soon", expected=f"{_FILE} bytes")
        finally:
            os.close(descriptor)


class _Copier:
    """Copies memory to other memory."""

    def __init__(self) -> None:
        self._source, self._target = np.ones(_COPIED, np.uint8), np.zeros(_COPIED, np.uint8)

    def __call__(self) -> None:
        np.copyto(self._target, self._source)


def _rate(count: int, nbytes: int, work: Sequence[Callable[[], None]]) -> float:
    """Return the bytes a second of the first ones together, the median of several rounds."""
    with ThreadPoolExecutor(count) as team:
        return count * nbytes / median(_rounds(lambda: list(team.map(lambda each: each(), work[:count]))))


def _rounds(work: Callable[[], object]) -> Iterator[float]:
    for _ in range(_REPEATS):
        begin = perf_counter()
        work()
        yield perf_counter() - begin


def _latency(path: Path) -> float:
    """Return the seconds of a read of one page, somewhere."""
    memory = mmap.mmap(-1, _PAGE)
    draw = np.random.default_rng(1)
    descriptor = _opened(path)
    try:
        found = []
        for offset in draw.integers(0, _FILE // _PAGE, _PAGES) * _PAGE:
            begin = perf_counter()
            os.preadv(descriptor, [memory], int(offset))
            found.append(perf_counter() - begin)
    finally:
        os.close(descriptor)
    return median(found)


def _decoding(path: Path) -> float:
    """Return the decoded bytes a second of one thread, of chunks that lie in the page cache."""
    voxels = np.random.default_rng(2).poisson(3.0, _DECODED).astype("<i2")
    blosc = BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle")
    # One chunk: readers decode several at once.
    array = zarr.create_array(path, shape=_DECODED, chunks=_DECODED, dtype="<i2", compressors=blosc)
    array[...] = voxels
    out = np.empty(_DECODED, "<i2")
    with closing(open_reader(Location(os.fspath(path), axes="CDHW"))) as reader:
        whole = reader.describe().whole

        def read() -> None:
            forget_chunks()
            reader.read_into(whole, out)

        read()
        if not np.array_equal(out, voxels):
            raise UsageError(f"{path}", found="other voxels than were written", remedy="check the folder's disk")
        return out.nbytes / median(_rounds(read))
