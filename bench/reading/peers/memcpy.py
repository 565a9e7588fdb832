"""memcpy of as many bytes from memory: the limit of the machine for one thread."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

from bench.reading.contender import Entry, Job, Setting


class CopySession:
    """Copies the expected bytes, which lie in memory in the order of the buffer."""

    def __init__(self, job: Job) -> None:
        self.out = job.out
        self._source = job.expected.copy()

    def prepare(self) -> None:
        """Do nothing."""

    def read(self) -> None:
        """Copy."""
        ctypes.memmove(self.out.ctypes.data, self._source.ctypes.data, self._source.nbytes)

    def close(self) -> None:
        """Do nothing."""


def entries(job: Job) -> Iterable[Entry]:
    """Return one row; there is nothing to copy from where the pages are cold."""
    if not job.case.is_cold:
        yield Entry("memcpy", "memcpy", 0, (Setting("", CopySession),))
