"""Results: the runs of each contender, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.prefetching.contender import Contender
from bench.prefetching.forecast import Forecast
from bench.prefetching.job import Account, EpochAccount
from bench.prefetching.served import Tally


@dataclass(frozen=True, slots=True)
class Run:
    """One contender's epochs, once."""

    accounts: tuple[Account, ...]
    """One for each rank."""
    tally: Tally
    bystanders: float
    """Cores that others used meanwhile."""

    @property
    def marks(self) -> tuple[float, ...]:
        """When the first rank began, and when the last one ended each epoch."""
        epochs = list(zip(*(account.epochs for account in self.accounts), strict=True))
        begin = min(account.epochs[0].begin for account in self.accounts)
        return (begin, *(max(each.end for each in epoch) for epoch in epochs))

    @property
    def epochs(self) -> tuple[float, ...]:
        """Seconds of each epoch; the first one has everything that is set up when the clock runs."""
        return tuple(float(seconds) for seconds in np.diff(self.marks))

    @property
    def seconds(self) -> float:
        """Seconds of all epochs."""
        return self.marks[-1] - self.marks[0]

    @property
    def wait(self) -> float:
        """Share of the time from the second epoch on in which a rank waited in ``next``, on average."""
        return self._share([epoch.wait for epoch in self._later])

    @property
    def stall(self) -> float:
        """The same without what ranks took to compare their samples, by the loader's own count."""
        return self._share([epoch.stall for epoch in self._later])

    @property
    def stream(self) -> tuple[tuple[int, ...], ...]:
        """What each rank was given."""
        return tuple(account.stream for account in self.accounts)

    @property
    def _later(self) -> list[EpochAccount]:
        return [epoch for account in self.accounts for epoch in account.epochs[1:]]

    def _share(self, seconds: Sequence[float]) -> float:
        later = self.marks[-1] - self.marks[1]
        return sum(seconds) / len(self.accounts) / later if later else 0.0


@dataclass(frozen=True, slots=True)
class Result:
    """All runs of a contender."""

    contender: Contender
    compute: float
    """Seconds of a step."""
    forecast: Forecast
    runs: tuple[Run, ...]
    """One for each round."""

    @property
    def seconds(self) -> float:
        """Median of the runs' times."""
        return float(np.median([run.seconds for run in self.runs]))

    @property
    def spread(self) -> float:
        """Half the distance from the shortest run to the longest, over the median."""
        times = [run.seconds for run in self.runs]
        return (max(times) - min(times)) / 2 / self.seconds

    @property
    def epochs(self) -> tuple[float, ...]:
        """Median of each epoch's times."""
        return tuple(float(seconds) for seconds in np.median([run.epochs for run in self.runs], axis=0))

    @property
    def wait(self) -> float:
        """Median over runs."""
        return float(np.median([run.wait for run in self.runs]))

    @property
    def stall(self) -> float:
        """Median over runs."""
        return float(np.median([run.stall for run in self.runs]))

    @property
    def data_bytes(self) -> int:
        """Bytes of voxels that the storage served in the run in which they were most."""
        return max(run.tally.data_bytes for run in self.runs)

    @property
    def requests(self) -> int:
        """Median over runs."""
        return int(np.median([run.tally.requests for run in self.runs]))

    @property
    def bystanders(self) -> float:
        """Most over runs."""
        return max(run.bystanders for run in self.runs)
