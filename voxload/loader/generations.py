"""BlockGenerations: what this rank's blocks were stored as, and whether they were written anew since."""

from __future__ import annotations

import threading
from collections.abc import Callable

from voxload.dataset import VolumeDataset
from voxload.errors import VoxloadError
from voxload.readers.generation import Generation, file_generation
from voxload.readers.store import is_url

Generations = tuple[Generation | None, ...]
"""Of each field; None of a field that its storage tells nothing of by which it could be known again."""


class BlockGenerations:
    """Tells the generations of samples' blocks; safe to use from many threads at once.

    Parameters
    ----------
    data
        The data set, not augmented.
    outlives
        Whether blocks may be kept beyond the job. Where not, nothing is asked of storage behind URLs: within a job its
        readers pin the versions that they read.
    """

    def __init__(self, data: VolumeDataset, *, outlives: bool) -> None:
        self._data = data
        self._outlives = outlives
        self._lock = threading.Lock()
        self._is_quick: tuple[bool, ...] | None = None

    def first(self, sample: int) -> Generations | None:
        """Return those of a sample's blocks before anything of it is read; None where its storage does not say.

        No file is opened whose own stamp tells all, as that of the first sample's does: there may be many samples.
        """
        if not self._is_asked(sample):
            return self._nothing
        with self._lock:
            if self._is_quick is None:
                self._is_quick = self._compared()
        if not all(self._is_quick):
            return self.now(sample)
        return _told(lambda: self._unopened(sample))

    def now(self, sample: int) -> Generations | None:
        """Return those of a sample's blocks as they are stored now; None where its storage does not say."""
        return _told(lambda: self._data.generations(sample)) if self._is_asked(sample) else self._nothing

    @property
    def _nothing(self) -> Generations:
        return (None,) * len(self._data.field_names)

    def _is_asked(self, sample: int) -> bool:
        return self._outlives or not any(is_url(location.path) for location in self._data.locations(sample))

    def _unopened(self, sample: int) -> Generations:
        boxes: dict[str, Generation | None] = {}
        for location in self._data.locations(sample):
            if location.path not in boxes:
                boxes[location.path] = Generation.joined([file_generation(location.path)])
        return tuple(boxes[location.path] for location in self._data.locations(sample))

    def _compared(self) -> tuple[bool, ...]:
        """Return of which fields the files alone tell all, as far as the first sample shows."""
        quick, whole = _told(lambda: self._unopened(0)), _told(lambda: self._data.generations(0))
        if quick is None or whole is None:
            return (False,) * len(self._nothing)
        return tuple(
            one is not None and other is not None and one.name == other.name
            for one, other in zip(quick, whole, strict=True)
        )


def _told(ask: Callable[[], Generations]) -> Generations | None:
    try:
        return ask()
    except (OSError, VoxloadError):  # who reads it says so
        return None
