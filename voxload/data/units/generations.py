"""BlockGenerations: what tells kept blocks from what is written in their place later."""

from __future__ import annotations

import threading
from collections.abc import Callable

from voxload.data.units.unit import Generations, StoredUnits
from voxload.errors import VoxloadError
from voxload.readers.generation import Generation, file_generation
from voxload.readers.store import is_url


class BlockGenerations:
    """Tells the generations of units; safe to use from many threads at once.

    Parameters
    ----------
    units
        What is kept.
    outlives
        Whether blocks may be kept beyond the job. Where not, nothing is asked of storage behind URLs: within a job its
        readers pin the versions that they read.
    alike
        Whether what the first one shows holds for all. Where not, each is opened to be looked at.
    """

    def __init__(self, units: StoredUnits, *, outlives: bool, alike: bool = True) -> None:
        self._units = units
        self._outlives, self._alike = outlives, alike
        self._lock = threading.Lock()
        self._is_quick: tuple[bool, ...] | None = None

    def first(self, number: int) -> Generations | None:
        """Return those of a unit before anything of it is read; None where its storage does not say.

        No file is opened whose own stamp tells all, as that of the first unit's does: there may be many.
        """
        if not self._is_asked(number):
            return self._nothing(number)
        if not self._alike:
            return self.now(number)
        with self._lock:
            if self._is_quick is None:
                self._is_quick = self._compared()
        if not all(self._is_quick):
            return self.now(number)
        return _told(lambda: self._unopened(number))

    def now(self, number: int) -> Generations | None:
        """Return those of a unit as it is stored now; None where its storage does not say."""
        return _told(lambda: self._units.generations(number)) if self._is_asked(number) else self._nothing(number)

    def _nothing(self, number: int) -> Generations:
        return (None,) * len(self._units.unit(number).fields)

    def _is_asked(self, number: int) -> bool:
        return self._outlives or not any(is_url(location.path) for location in self._units.unit(number).locations)

    def _unopened(self, number: int) -> Generations:
        boxes: dict[str, Generation | None] = {}
        locations = self._units.unit(number).locations
        for location in locations:
            if location.path not in boxes:
                boxes[location.path] = Generation.joined([file_generation(location.path)])
        return tuple(boxes[location.path] for location in locations)

    def _compared(self) -> tuple[bool, ...]:
        """Return of which fields the files alone tell all, as far as the first unit shows."""
        quick, whole = _told(lambda: self._unopened(0)), _told(lambda: self._units.generations(0))
        if quick is None or whole is None:
            return (False,)
        return tuple(
            one is not None and other is not None and one.name == other.name
            for one, other in zip(quick, whole, strict=True)
        )


def _told(ask: Callable[[], Generations]) -> Generations | None:
    try:
        return ask()
    except (OSError, VoxloadError):  # who reads it says so
        return None
