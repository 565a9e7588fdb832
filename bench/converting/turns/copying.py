"""Copying: SOURCE RESULT COMPRESSION; pieces read in order, compressed, and written one behind the other.

Each thread reads into a buffer of its own, compresses without the interpreter lock and writes to the next free place:
no thread waits for another. Pieces of 1 and 4 MiB take the same time as those of 2 MiB.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from bench.converting.meter import metered
from voxload.convert.storage.compression import Compression, ZarrEncoder

PIECE = 2 * 2**20
_SHUFFLES = {"shuffle": 1, "bitshuffle": 2}


Compress = Callable[[npt.NDArray[Any]], bytes]
"""Compresses a piece; safe to call from many threads."""


def _compressor(compression: str) -> Compress:
    """Return what compresses as a conversion to Zarr does, by the same library in one thread."""
    blosc = ZarrEncoder(Compression(compression), np.dtype(np.int16)).codecs[0].to_dict()["configuration"]
    encode: Callable[..., Any] = imagecodecs.blosc_encode
    shuffle = _SHUFFLES[blosc["shuffle"]]
    return partial(encode, level=blosc["clevel"], compressor=blosc["cname"], shuffle=shuffle, numthreads=1)


class _Copy:
    """A copy under way."""

    def __init__(self, pieces: Iterator[tuple[int, int, int]], out: int, compress: Compress) -> None:
        self._pieces, self._out, self._compress = pieces, out, compress
        self._lock = threading.Lock()
        self._end = 0
        self.failures: list[BaseException] = []

    def work(self) -> None:
        """Copy pieces until there are no more."""
        try:
            self._work(memoryview(bytearray(PIECE)))
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self.failures.append(error)

    def _work(self, buffer: memoryview) -> None:
        while True:
            with self._lock:
                piece = next(self._pieces, None)
            if piece is None:
                return
            source, offset, size = piece
            if os.preadv(source, [buffer[:size]], offset) != size:
                raise OSError("a short read")
            # imagecodecs takes the width of an element from the array, whatever it is told beside.
            kind = np.uint8 if size % 2 else np.int16
            data = self._compress(np.frombuffer(buffer[:size], kind))
            with self._lock:
                place, self._end = self._end, self._end + len(data)
            os.pwrite(self._out, data, place)


def main() -> None:
    """Copy every file of a folder into one."""
    source, result, compression = sys.argv[1:]
    with metered():
        files = [os.open(path, os.O_RDONLY) for path in sorted(Path(source).iterdir())]
        out = os.open(result, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        sizes = [os.fstat(file).st_size for file in files]
        pieces = (
            (file, offset, min(PIECE, size - offset))
            for file, size in zip(files, sizes, strict=True)
            for offset in range(0, size, PIECE)
        )
        copy = _Copy(pieces, out, _compressor(compression))
        threads = [threading.Thread(target=copy.work) for _ in os.sched_getaffinity(0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os.fdatasync(out)
    if copy.failures:
        raise copy.failures[0]


if __name__ == "__main__":
    main()
