"""CostModel: how long a fetch will take, from those that ended; pure.

The seconds of a fetch are taken as ``latency + bytes / bandwidth``, fitted by least squares with weights that fall off
exponentially with age. Few observations say little, so a prior counts as one of them. The priors are optimistic, each
about as fast as such a place can be: what was never tried is tried, and then known. A peer of whom little is known is
taken to be like the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType

from voxload.errors import UsageError
from voxload.prefetch.events import Source, SourceKind

HANDICAP = 8.0
"""How many times faster than another place the storage must be to be preferred to it. All ranks share the storage: a
read that one rank spares is bandwidth for the others, and where all others read there it is far slower than measured
alone. A slower peer, on the other hand, costs nothing as long as its blocks come in time."""
GRACE = 0.25
"""Seconds by which another place may be slower than that besides: fetching ahead hides them, so that small blocks are
not read from a storage that merely answers quickly, nor others because a busy node made one fetch wait."""
MEMORY_OF = 0.95
"""Weight of an observation against that of the next one: about the last twenty count."""
OUTLIER = 4.0
"""An observation counts as at most this many times, and at least this fraction of, what was expected: one hiccup moves
little, while a real change by 100 has come through after some ten fetches."""
KNOWN = 4
"""Observations from which on a peer is judged by its own and no longer by all peers'."""
REMEMBERED = 1024
"""Ratios of actual to predicted seconds that are kept of each kind."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What a fetch costs: ``latency + bytes / bandwidth``."""

    latency: float
    """Seconds."""
    bandwidth: float
    """Bytes a second."""

    def seconds(self, nbytes: int) -> float:
        """Return the duration of a fetch."""
        return self.latency + nbytes / self.bandwidth


PRIORS: Mapping[SourceKind, Speed] = MappingProxyType(
    {
        SourceKind.MEMORY: Speed(latency=1e-5, bandwidth=10e9),
        SourceKind.DISK: Speed(latency=1e-4, bandwidth=3e9),
        SourceKind.PEER: Speed(latency=1e-4, bandwidth=5e9),
        SourceKind.STORAGE: Speed(latency=1e-3, bandwidth=2e9),
    }
)
"""Memory on one core, an NVMe disk, a link of 40 Gbit/s, one client of a parallel file system."""


class Estimate:
    """Latency and bandwidth of one place, fitted while it is used."""

    def __init__(self, prior: Speed) -> None:
        self._prior = prior
        self._weight = self._x = self._y = self._xx = self._xy = 0.0
        self.count = 0
        """Observations so far."""

    def predicted(self, nbytes: int) -> float:
        """Return the expected seconds of a fetch."""
        return self._prior.seconds(nbytes) if self.count == 0 else max(0.0, self._line(nbytes))

    def observe(self, nbytes: int, seconds: float) -> None:
        """Learn from a fetch that ended."""
        if self.count == 0:
            self._add(nbytes, self._prior.seconds(nbytes))
        elif self.count >= KNOWN:
            expected = self.predicted(nbytes)
            seconds = min(max(seconds, expected / OUTLIER), expected * OUTLIER)
        self._add(nbytes, seconds)
        self.count += 1

    def _add(self, nbytes: int, seconds: float) -> None:
        old = (self._weight, self._x, self._y, self._xx, self._xy)
        new = (1.0, nbytes, seconds, nbytes * nbytes, nbytes * seconds)
        # The first few fade faster, the prior among them: it says where to begin, not what is true.
        keep = min(MEMORY_OF, (self.count + 1) / (self.count + 2))
        self._weight, self._x, self._y, self._xx, self._xy = (
            keep * before + more for before, more in zip(old, new, strict=True)
        )

    def _line(self, nbytes: int) -> float:
        x, y = self._x / self._weight, self._y / self._weight
        spread = self._xx / self._weight - x * x
        if spread > 1e-4 * x * x:
            slope = (self._xy / self._weight - x * y) / spread
            # Neither latency nor bandwidth is negative; where the fit says so, the other explains everything.
            slope = min(max(slope, 0.0), y / x)
            return y + slope * (nbytes - x)
        # Blocks of one size do not tell latency from bandwidth: the prior's latency is taken, the rest is bandwidth.
        latency = min(self._prior.latency, y) if x else y
        return latency + (y - latency) / x * nbytes if x else y


class CostModel:
    """Predicts the seconds of fetches; one per planner, not safe to use from several threads.

    Parameters
    ----------
    handicap
        See `HANDICAP`; 1 for none, infinity to read from the storage only what nobody else has.
    grace
        See `GRACE`; 0 for none.
    priors
        What is expected of each kind of place before it was tried.

    >>> costs = CostModel()
    >>> storage = Source(SourceKind.STORAGE)
    >>> for _ in range(50):
    ...     costs.observe(storage, 1_000_000, 0.02)
    >>> round(costs.predicted(storage, 1_000_000), 3)
    0.02
    """

    def __init__(
        self, *, handicap: float = HANDICAP, grace: float = GRACE, priors: Mapping[SourceKind, Speed] = PRIORS
    ) -> None:
        if not (handicap >= 1 and grace >= 0):
            raise UsageError(
                "handicap and grace of the storage", found=f"{handicap}, {grace}", expected="1 or more, 0 or more"
            )
        self._handicap, self._grace = handicap, grace
        self._priors = priors
        self._kinds = {kind: Estimate(prior) for kind, prior in priors.items()}
        self._peers: dict[int, Estimate] = {}
        self._ratios: dict[SourceKind, deque[float]] = {kind: deque(maxlen=REMEMBERED) for kind in priors}

    def predicted(self, source: Source, nbytes: int) -> float:
        """Return the seconds that a fetch of `nbytes` is expected to take."""
        own = self._peers.get(source.group) if source.kind is SourceKind.PEER else None
        return (own if own and own.count >= KNOWN else self._kinds[source.kind]).predicted(nbytes)

    def weighed(self, source: Source, nbytes: int) -> float:
        """Return the same, with handicap and grace where the source is the storage: what sources are compared by."""
        seconds = self.predicted(source, nbytes)
        return seconds * self._handicap + self._grace if source.kind is SourceKind.STORAGE else seconds

    def observe(self, source: Source, nbytes: int, seconds: float) -> None:
        """Learn from a fetch that ended well and did not wait for its block."""
        if seconds > 0 and (predicted := self.predicted(source, nbytes)) > 0:
            self._ratios[source.kind].append(seconds / predicted)
        self._kinds[source.kind].observe(nbytes, seconds)
        if source.kind is SourceKind.PEER:
            if source.group not in self._peers:
                self._peers[source.group] = Estimate(self._priors[SourceKind.PEER])
            self._peers[source.group].observe(nbytes, seconds)

    def accuracy(self) -> dict[SourceKind, float]:
        """Return the median of actual over predicted seconds of the latest fetches, by kind; 1 is perfect."""
        return {kind: median(ratios) for kind, ratios in self._ratios.items() if ratios}
