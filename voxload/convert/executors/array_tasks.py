"""Tasks: which of several tasks that convert into one folder is the last one, and so writes the catalogue.

A task that is done leaves a mark that says of which plan it did its share. Marks of another plan count for nothing:
they are of an earlier conversion that did not come to its end, or of a task that saw other sources or was told
otherwise, and then volumes may be missing that nobody took.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path

from voxload.convert.options import Share
from voxload.convert.plan.volumeplan import VolumePlan
from voxload.convert.write.writer import writing
from voxload.files.lock import exclusive
from voxload.files.records import read_record, write_record

_PREFIX = ".voxload-convert."
_DONE = ".done"
_GATE = ".voxload-convert.catalog.lock"


class Tasks:
    """The tasks of one conversion, known by the marks that they leave in the folder; the folder's lock is held.

    Parameters
    ----------
    folder
        The folder that they convert into.
    share
        This task; None where it is the only one.
    volumes
        What all of them convert, in order.
    """

    def __init__(self, folder: Path, share: Share | None, volumes: Sequence[VolumePlan]) -> None:
        self._folder = folder
        self._share = share
        self._plan = _digest(volumes)

    def begin(self) -> None:
        """Take back the mark of an earlier run of this task, so that nobody is the last while it is under way."""
        if self._share is not None:
            with self._gate():
                self._mark(self._share.task, self._share.tasks).unlink(missing_ok=True)

    @contextmanager
    def last(self, is_whole: Callable[[], bool]) -> Iterator[bool]:
        """Mark this task as done, and yield whether all are; the others wait meanwhile.

        Marks are removed when the block of the last one ends well, so that it is done again if that is killed. Where
        marks are missing, `is_whole` is asked whether the folder is as the last task leaves it, its catalogue too:
        then that one was here, and whoever runs again is the last, too.
        """
        share = self._share
        if share is None:
            yield True
            self._remove_marks()
            return
        with self._gate():
            write_record(self._mark(share.task, share.tasks), self._plan)
            is_last = all(self._is_marked(task, share.tasks) for task in range(share.tasks)) or is_whole()
            yield is_last
            if is_last:
                self._remove_marks()

    @contextmanager
    def _gate(self) -> Iterator[None]:
        """Be the only one that looks at marks; the catalogue of many volumes takes its time."""
        with writing(self._folder), exclusive(self._folder / _GATE, patience=inf):
            yield

    def _is_marked(self, task: int, tasks: int) -> bool:
        return read_record(self._mark(task, tasks)) == self._plan

    def _remove_marks(self) -> None:
        """Remove what tasks left, those of other numbers of them too: the folder is complete.

        The lock files that killed tasks left are removed where none of them can be alive, while the folder's lock is
        held by this process alone, or with tasks of this number.
        """
        alive = f"-of-{self._share.name.rpartition('-')[2]}.lock" if self._share else "none"
        with writing(self._folder):
            for path in self._folder.glob(f"{_PREFIX}*-of-*"):
                if path.suffix == _DONE or not path.name.endswith(alive):
                    path.unlink(missing_ok=True)

    def _mark(self, task: int, tasks: int) -> Path:
        return self._folder / f"{_PREFIX}{Share(task, tasks).name}{_DONE}"


def _digest(volumes: Sequence[VolumePlan]) -> str:
    """Return a digest of what is converted and how, wherever the sources lie."""
    digest = hashlib.sha256()
    for volume in volumes:
        manifest = volume.manifest
        files = [(file.name, file.size, file.mtime_ns) for part in manifest.parts for file in part.files]
        files += [(one.name, one.first, one.channels) for part in manifest.parts for one in part.variables]
        stored = (manifest.dtype, manifest.shape, manifest.chunks, manifest.shards, manifest.compression)
        digest.update(repr((volume.final.name, manifest.dataset, stored, files, manifest.members)).encode())
    return digest.hexdigest()
