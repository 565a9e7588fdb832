"""Results: what the runs of all contenders come to, and what was asked of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.harness.findings import Finding, at_least, at_most
from bench.prefetching.forecast import Forecast
from bench.prefetching.served import Tally
from voxload.benchmark.measure.document import Document
from voxload.benchmark.measure.record import Epoch, Record
from voxload.benchmark.measure.turns import Turns

TORCH, PLAIN = "torch", "plain"
"""torch's loader over voxload's data set, and voxload without a cache; all other contenders are policies."""
HALF, TRAIN = "half", "train"
"""Behind a policy: tiers of half the data set. Behind any contender: a step that is longer."""
BEST = "clairvoyant"
CAPTION = (
    "medians of all rounds; spread: half the range over the median; wait: share of the time in next(), stall: that\n"
    "without the ranks' comparing of samples, both from epoch 2 on; read: bytes of voxels that the server sent, over\n"
    "those of the data set, in the round in which they were most"
)
"""What the columns of `Row` are."""


@dataclass(frozen=True, slots=True)
class Run:
    """One contender's epochs, once."""

    document: Document
    """What the ranks measured."""
    tally: Tally
    """What the storage served."""

    @property
    def records(self) -> tuple[Record, ...]:
        """Of each rank."""
        return self.document.runs[0].records

    @property
    def wrong(self) -> list[tuple[int, str]]:
        """Rank and sentence for each block that was not as generated, where that was looked at."""
        return [(record.rank, line) for record in self.records for line in record.wrong]

    @property
    def epochs(self) -> tuple[float, ...]:
        """Seconds of each epoch on its slowest rank; the first one has everything that is set up when the clock runs.

        Between epochs the ranks wait for each other and look at the kernel's counters, which does not count.
        """
        same = zip(*(record.epochs for record in self.records), strict=True)
        return tuple(max(epoch.wall for epoch in each) for each in same)

    @property
    def seconds(self) -> float:
        """Seconds of all epochs."""
        return sum(self.epochs)

    @property
    def wait(self) -> float:
        """Share of the time from the second epoch on in which a rank waited in ``next``, on average."""
        return self._share(lambda epoch: sum(epoch.steps.stall))

    @property
    def stall(self) -> float:
        """The same without what ranks took to compare their samples, by the loader's own count; 0 without one."""
        return self._share(lambda epoch: epoch.counts.get("seconds_stalled", 0.0))

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as plain values, with those of each step on each rank."""
        figures = {name: getattr(self, name) for name in ("seconds", "epochs", "wait", "stall")}
        return figures | {"storage": asdict(self.tally), "document": json.loads(self.document.to_json())}

    def _share(self, seconds: Callable[[Epoch], float]) -> float:
        later = sum(self.epochs[1:])
        spent = sum(seconds(epoch) for record in self.records for epoch in record.epochs[1:])
        return spent / len(self.records) / later if later else 0.0


def median_epochs(runs: Sequence[Run]) -> tuple[float, ...]:
    """Return the median of each epoch's times."""
    return tuple(float(seconds) for seconds in np.median([run.epochs for run in runs], axis=0))


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table; see `CAPTION`."""

    contender: str
    step_ms: float
    seconds: float
    spread: float
    bound: float
    simulated: float
    epoch_1: float
    later: float | None
    """Mean of the other epochs."""
    wait: float
    stall: float | None
    """None where the loader does not tell."""
    read: float
    requests: int

    @classmethod
    def of(cls, contender: str, runs: Sequence[Run], forecast: Forecast) -> Row:
        """Return the line of a contender."""
        workload, data = runs[0].document.workload, runs[0].document.data
        times = [run.seconds for run in runs]
        first, *later = median_epochs(runs)
        is_told = "seconds_stalled" in runs[0].records[0].epochs[0].counts
        return cls(
            contender,
            step_ms=float(workload.emulation.seconds) * 1e3,
            seconds=float(np.median(times)),
            spread=(max(times) - min(times)) / 2 / float(np.median(times)),
            bound=forecast.bound,
            simulated=forecast.seconds,
            epoch_1=first,
            later=float(np.mean(later)) if later else None,
            wait=float(np.median([run.wait for run in runs])),
            stall=float(np.median([run.stall for run in runs])) if is_told else None,
            read=max(run.tally.data_bytes for run in runs) / data["bytes"],
            requests=int(np.median([run.tally.requests for run in runs])),
        )


def findings(turns: Turns[str, Run], forecasts: Mapping[str, Forecast], other_voxels: Sequence[str]) -> list[Finding]:
    """Return all goals whose contenders took part."""
    found = [*_speed(turns, forecasts), *_bytes(turns, forecasts)]
    if f"{BEST}/{TRAIN}" in turns.results:
        stalls = turns.figures(lambda run: run.stall).results[f"{BEST}/{TRAIN}"]
        found.append(at_most("stall from epoch 2 on", 0.01, stalls))
    return [*found, at_most("blocks of other voxels than were generated", 0, (len(other_voxels),))]


def _speed(turns: Turns[str, Run], forecasts: Mapping[str, Forecast]) -> list[Finding]:
    if BEST not in turns.results:
        return []
    found, seconds = [], turns.figures(lambda run: run.seconds)
    for name, wanted in ((TORCH, 2.1), ("lru", 1.3)):
        if name in turns.results:
            found.append(at_least(f"times faster than {name}", wanted, seconds.ratios(name, BEST)))
    if PLAIN in turns.results:
        first = turns.figures(lambda run: run.epochs[0])
        found.append(at_least("epoch 1: speed to plain reads", 0.98, first.ratios(PLAIN, BEST)))
    times, forecast = seconds.results[BEST], forecasts[BEST]
    found.append(at_most("time to the lower bound", 1.1, tuple(each / forecast.bound for each in times)))
    off = tuple(abs(forecast.seconds / each - 1) for each in times)
    return [*found, at_most("simulated time off by", 0.15, off)]


def _bytes(turns: Turns[str, Run], forecasts: Mapping[str, Forecast]) -> list[Finding]:
    found, half = [], f"{BEST}/{HALF}"
    if BEST in turns.results:
        tallies = [run.tally for run in turns.results[BEST]]
        # One figure for all rounds: a median would forgive one of them.
        found.append(at_least("times that each byte was read, always", 1, (min(each.least for each in tallies),)))
        found.append(at_most("times that each byte was read, always", 1, (max(each.most for each in tallies),)))
    if half in turns.results:
        nbytes = turns.figures(lambda run: run.tally.data_bytes / forecasts[half].optimum_bytes)
        found.append(at_most("half tiers: bytes to the optimum", 1.05, nbytes.results[half]))
    return found
