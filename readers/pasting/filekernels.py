"""File kernels: many small files, each opened, read and pasted without Python between them.

What an interpreter does for a file takes as long as a quarter of a chunk's copy, and holds its lock. These functions
of ``readers/core/files.c`` judge nothing: a file that is not there, or not as long as it should be, is left out and
named, and the careful way finds out why.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from voxload.readers._core import load_file as load_file
from voxload.readers._core import paste_files as paste_files
from voxload.readers.pasting.kernels import Table

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
