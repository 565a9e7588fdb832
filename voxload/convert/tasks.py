"""Tasks: which of several tasks that convert into one folder is the last one, and so writes the catalogue."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from voxload.convert.share import Share
from voxload.convert.writer import writing

_PREFIX = ".voxload-convert."
_DONE = ".done"
_GATE = ".voxload-convert.catalog.lock"


class Tasks:
    """The tasks of one conversion, known by the marks that they leave in the folder.

    Parameters
    ----------
    folder
        The folder that they convert into.
    share
        This task; None where it is the only one.
    """

    def __init__(self, folder: Path, share: Share | None) -> None:
        self._folder = folder
        self._share = share

    @contextmanager
    def last(self) -> Iterator[bool]:
        """Mark this task as done, and yield whether all are; the others wait meanwhile.

        Marks are removed when the block of the last one ends well, so that it is done again if that is killed.
        """
        share = self._share
        if share is None:
            yield True
            return
        with writing(self._folder), (self._folder / _GATE).open("ab") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            self._mark(share).touch()
            marks = [self._mark(Share(task, share.tasks)) for task in range(share.tasks)]
            is_last = all(mark.exists() for mark in marks)
            yield is_last
            if is_last:
                for mark in marks:
                    mark.unlink()
                os.unlink(gate.name)  # noqa: PTH108 - the name of an open file

    def _mark(self, share: Share) -> Path:
        return self._folder / f"{_PREFIX}{share.name}{_DONE}"
