"""Cooling: the page cache of each node is emptied by one of its ranks, while the others wait."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from voxload.benchmark.coldness import DIRECT, make_cold
from voxload.benchmark.datafiles import DataFiles
from voxload.benchmark.document import Cold
from voxload.benchmark.hog import Hog
from voxload.benchmark.mappings import let_go
from voxload.benchmark.meeting import Meeting
from voxload.benchmark.workload import EPOCH, NEVER, Coldness
from voxload.readers import set_direct_reads


class Cooling:
    """Makes epochs begin cold; every rank makes one and calls it at the same points.

    Parameters
    ----------
    coldness
        What is asked for.
    files
        The data set's.
    shared
        The ranks.
    leads
        Whether this rank is the one of its node that does it.
    """

    def __init__(self, coldness: Coldness, files: DataFiles, shared: Meeting, *, leads: bool) -> None:
        self._coldness, self._files = coldness, files
        self._shared, self._leads = shared, leads
        self.first: Cold | None = None
        """What was done and seen before the first epoch, on rank 0; None before it, and on ranks that lead no node."""

    def __call__(self, epoch: int) -> float:
        """Make ready for an epoch; return the share of the data set in memory, NaN where this rank does not look.

        Raises what `make_cold` raises; other ranks end then too, since this one no longer answers.
        """
        let_go(self._files.files)  # pages that a process maps are not dropped
        self._shared.wait()  # nobody reads any more
        cold = None
        if self._leads and (epoch == 0 or self._coldness.when == EPOCH):
            cold = make_cold(self._files, self._coldness)
        self._shared.wait()
        self.first = self.first or cold
        return math.nan if cold is None else cold.resident


@contextmanager
def pressure(coldness: Coldness, *, leads: bool) -> Iterator[None]:
    """Hold memory and read past the page cache for as long as that is asked for.

    Raises UsageError when there is not as much memory.
    """
    is_direct = coldness.when != NEVER and coldness.method == DIRECT
    with Hog(coldness.hog if leads else 0):
        if is_direct:
            set_direct_reads(is_direct=True)
        try:
            yield
        finally:
            if is_direct:
                set_direct_reads(is_direct=False)
