"""File kernels: many small files, each opened, read and pasted without Python between them.

What an interpreter does for a file takes as long as a quarter of a chunk's copy, and holds its lock. These functions
of ``core/read/files.c`` judge nothing: a file that is not there, or not as long as it should be, is left out and
named, and the careful way finds out why.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from voxload.core.library import function
from voxload.errors import InternalError
from voxload.readers.pasting.kernels import Table
from voxload.readers.scratch import Bytes

NAME, START, STOP, BEGIN, END = range(5)
"""Columns of the jobs: where the file's name begins, the bytes that are wanted of it, and its rows in the plan."""
COLUMNS = 5


def plan_jobs(names: npt.NDArray[np.uint64], spans: Sequence[tuple[int, int]], bounds: Sequence[int]) -> Table:
    """Return the jobs of `paste_files`: one row for each of a plan's chunks."""
    jobs: Table = np.empty((len(spans), COLUMNS), np.uint64)
    jobs[:, NAME] = names
    jobs[:, START : STOP + 1] = spans
    jobs[:, BEGIN], jobs[:, END] = bounds[:-1], bounds[1:]
    return jobs


_paste_files = function("paste_named_files", "rrnrwnnbw")
_load_file = function("load_named_file", "rwn", "i")


def paste_files(
    names: Bytes, jobs: Table, table: Table, chunk: Bytes, width: int, *, is_swapped: bool, done: npt.NDArray[np.uint8]
) -> None:
    """Read and paste files as long as `chunk`, by way of it; `done` becomes 1 for each that was pasted.

    Raises
    ------
    InternalError
        When a job lies beyond the names, the chunk or the table.
    """
    ends_well = bool(len(names)) and names[-1] == 0
    is_inside = (
        (jobs[:, NAME] < len(names)) & (jobs[:, START] <= jobs[:, STOP]) & (jobs[:, STOP] <= chunk.size)
        & (jobs[:, BEGIN] <= jobs[:, END]) & (jobs[:, END] <= len(table))
    )  # fmt: skip
    if len(done) < len(jobs) or (len(jobs) and not (ends_well and is_inside.all())):
        raise InternalError("plan", found=f"{len(jobs)} files", expected="within its arrays")
    _paste_files(names, jobs, len(jobs), table, chunk, chunk.size, width, is_swapped, done)


def load_file(name: Bytes, buffer: Bytes) -> int:
    """Read a file, whose name a zero byte ends, and return its size; nothing is read where it is longer than `buffer`.

    -1 where it is none, cannot be opened or did not come whole.
    """
    if not len(name) or name[-1]:
        raise InternalError("name of a file", found="no zero byte at its end")
    return int(_load_file(name, buffer, buffer.size))
