"""File kernels: many small files, each opened, read and pasted without Python between them.

What an interpreter does for a file takes as long as a quarter of a chunk's copy, and holds its lock. These kernels
call the C library themselves. They judge nothing: a file that is not there, or not as long as it should be, is left
out and named, and the careful way finds out why.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import boolean, int64, types, uint8, uint64

from voxload.readers.compiling import compiled, part
from voxload.readers.pasting.kernels import BYTES, TABLE, Table, paste_part

_open: Any = types.ExternalFunction("open", types.int32(types.uint64, types.int32))
_lseek: Any = types.ExternalFunction("lseek", types.int64(types.int32, types.int64, types.int32))
_pread: Any = types.ExternalFunction("pread", types.int64(types.int32, types.uint64, types.uint64, types.int64))
_close: Any = types.ExternalFunction("close", types.int32(types.int32))
# Without O_NONBLOCK, opening a pipe in a chunk's place would wait for its writer; files do not care.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_END = os.SEEK_END
WRITABLE = types.Array(uint8, 1, "C")


@part
def _read(path: Any, size: Any, start: Any, stop: Any, to: Any) -> Any:
    """Read bytes of a file of `size` bytes to an address; tells whether it had that size and all came."""
    descriptor = _open(path, _FLAGS)
    if descriptor < 0:
        return False
    is_whole = _lseek(descriptor, 0, _END) == size and _pread(descriptor, to, stop - start, start) == stop - start
    _close(descriptor)
    return is_whole


NAME, START, STOP, BEGIN, END = range(5)
"""Columns of the jobs: where the file's name begins, the bytes that are wanted of it, and its rows in the plan."""
COLUMNS = 5


@compiled(BYTES, TABLE, TABLE, WRITABLE, uint64, boolean, WRITABLE)
def paste_files(names: Any, jobs: Any, table: Any, chunk: Any, width: int, is_swapped: bool, done: Any) -> None:
    """Read and paste chunks of which each is a file of its own, as long as `chunk`.

    Parameters
    ----------
    names
        All names, each ended by a zero byte.
    jobs
        One row a file.
    table
        The plan.
    chunk
        Scratch for one chunk.
    width
        Bytes of an element.
    is_swapped
        Whether the bytes of elements stand in the other order.
    done
        Set to 1 for each chunk that was pasted.
    """
    start, size = uint64(chunk.ctypes.data), uint64(len(chunk))
    for number in range(len(jobs)):
        job = jobs[number]
        name, to = uint64(names.ctypes.data) + job[NAME], start + job[START]
        if _read(name, len(chunk), job[START], job[STOP], to):
            for row in range(job[BEGIN], job[END]):
                paste_part(start, size, table[row], width, False, is_swapped)  # noqa: FBT003 - kernels know no names
            done[number] = 1


@compiled(BYTES, WRITABLE, returns=int64)
def load_file(name: Any, buffer: Any) -> Any:
    """Read a file into the front of `buffer` and return its size; nothing is read where it is longer than `buffer`.

    Between the four calls that this takes, an interpreter would hand its lock over four times.

    Parameters
    ----------
    name
        The file's name, ended by a zero byte.
    buffer
        Bytes.

    Returns
    -------
    The file's size, or -1 where it cannot be opened or did not come whole.
    """
    descriptor = _open(uint64(name.ctypes.data), _FLAGS)
    if descriptor < 0:
        return -1
    size = _lseek(descriptor, 0, _END)
    if 0 < size <= len(buffer) and _pread(descriptor, uint64(buffer.ctypes.data), size, 0) != size:
        size = -1
    _close(descriptor)
    return size


def plan_jobs(names: npt.NDArray[np.uint64], spans: Sequence[tuple[int, int]], bounds: Sequence[int]) -> Table:
    """Return the jobs of `paste_files`: one row for each of a plan's chunks."""
    jobs: Table = np.empty((len(spans), COLUMNS), np.uint64)
    jobs[:, NAME] = names
    jobs[:, START : STOP + 1] = spans
    jobs[:, BEGIN], jobs[:, END] = bounds[:-1], bounds[1:]
    return jobs
