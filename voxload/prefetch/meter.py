"""Meter: what came from which kind of place, how long it took, and how long that was predicted to take."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from voxload.prefetch.events import SourceKind


@dataclass(frozen=True, slots=True)
class Traffic:
    """Totals of one kind of place."""

    fetches: int = 0
    """Blocks that came from it."""
    misses: int = 0
    """Blocks that were asked of it in vain."""
    nbytes: int = 0
    """Bytes of those that came."""
    seconds: float = 0.0
    """Sum over the fetches, which run side by side."""
    predicted: float = 0.0
    """What the cost model said before they began, over those of which it knew anything."""
    foreseen: float = 0.0
    """Seconds that these took."""

    @property
    def bandwidth(self) -> float:
        """Bytes a second of one fetch."""
        return self.nbytes / self.seconds if self.seconds else 0.0


class Meter:
    """Adds up traffic by kind; safe to use from many threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = {kind: Traffic() for kind in SourceKind}

    def fetched(self, kind: SourceKind, *, blocks: int, nbytes: int, seconds: float, predicted: float | None) -> None:
        """Count a fetch that succeeded."""
        with self._lock:
            old = self._totals[kind]
            self._totals[kind] = replace(
                old,
                fetches=old.fetches + blocks,
                nbytes=old.nbytes + nbytes,
                seconds=old.seconds + seconds,
                predicted=old.predicted + (predicted or 0.0),
                foreseen=old.foreseen + (seconds if predicted is not None else 0.0),
            )

    def missed(self, kind: SourceKind, *, blocks: int) -> None:
        """Count a fetch that failed."""
        with self._lock:
            self._totals[kind] = replace(self._totals[kind], misses=self._totals[kind].misses + blocks)

    def totals(self) -> dict[SourceKind, Traffic]:
        """Return the totals so far; of a service only where blocks came from one."""
        with self._lock:
            served = self._totals[SourceKind.SERVICE].fetches
            return {kind: each for kind, each in self._totals.items() if kind is not SourceKind.SERVICE or served}
