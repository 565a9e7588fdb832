"""Clock: times all contenders of a table in turn."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np

from bench.reading import pagecache
from bench.reading.contender import Entry, Job, Session, Setting
from voxload.benchmark.measure.turns import Bystanders

_TRIES = 4
"""Reads of each setting before the fastest is kept."""
_SURE = 0.02
"""Relative error of every median at which more rounds would change nothing."""
_QUIET = 0.1
"""Cores that others may use before a table is timed again; which try is kept depends on this alone."""
_MOST = 60
"""Rounds at most."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a table may take."""

    rounds: int
    """Rounds at least."""
    seconds: float
    """After this time no further round begins once there were enough."""
    tries: int
    """How often a table is timed at most, for as long as others keep the machine busy."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What one contender took."""

    peer: str
    """Name on the command line."""
    title: str
    """What tables call it, with the setting that was kept."""
    threads: int
    """Threads or processes that it may use; 0 when it has no such choice."""
    seconds: tuple[float, ...]
    """One time a round."""

    @property
    def median(self) -> float:
        """The middle time."""
        return float(np.median(self.seconds))

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles over the median."""
        low, high = np.percentile(self.seconds, (25, 75))
        return float((high - low) / 2 / self.median)


@dataclass(frozen=True, slots=True)
class Measurement:
    """All timings of a job, and what was in memory."""

    timings: tuple[Timing, ...]
    """One a contender."""
    wrong: tuple[str, ...]
    """Contenders that did not return what was written, and so were not timed."""
    resident: tuple[float, float]
    """Least and largest share of the sample's pages in memory when a read began."""
    bystanders: float
    """Cores that others used meanwhile."""


def measure(job: Job, entries: Sequence[Entry], limits: Limits) -> Measurement:
    """Choose each contender's setting, compare its result, and time all of them in turn."""
    files = job.sample.files()
    pagecache.warm(files)
    chosen = [(entry, _fastest(job, entry)) for entry in entries]
    wrong = tuple(entry.title for entry, setting in chosen if not _is_right(job, setting))
    field = [(entry, setting) for entry, setting in chosen if entry.title not in wrong]
    run = _cold if job.case.is_cold else _warm
    settings = [setting for _, setting in field]
    tries = []
    for _ in range(limits.tries):
        bystanders = Bystanders()
        seconds, held = run(job, files, settings, limits)
        tries.append((bystanders.cores(), seconds, held))
        if tries[-1][0] < _QUIET:
            break
    others, seconds, held = min(tries, key=itemgetter(0))
    timings = (
        Timing(entry.peer, _title(entry, setting), entry.threads, tuple(times))
        for (entry, setting), times in zip(field, seconds, strict=True)
    )
    return Measurement(tuple(timings), wrong, (min(held), max(held)), others)


def _title(entry: Entry, setting: Setting) -> str:
    return f"{entry.title} ({setting.label})" if setting.label else entry.title


def _fastest(job: Job, entry: Entry) -> Setting:
    """Return the setting whose shortest of a few reads is the shortest."""
    if len(entry.settings) == 1:
        return entry.settings[0]
    shortest = []
    for setting in entry.settings:
        session = setting.open(job)
        shortest.append(min(_time(session) for _ in range(_TRIES)))
        session.close()
    return entry.settings[int(np.argmin(shortest))]


def _is_right(job: Job, setting: Setting) -> bool:
    """Tell whether one read fills the whole buffer with what was written."""
    session = setting.open(job)
    session.out.view(np.uint8)[...] = 0xA5
    session.prepare()
    session.read()
    is_right = np.array_equal(session.out.view(np.uint8), job.expected.view(np.uint8))
    session.close()
    return is_right


def _time(session: Session) -> float:
    """Return the seconds of one read."""
    session.prepare()
    start = time.perf_counter()
    session.read()
    return time.perf_counter() - start


def _warm(
    job: Job, files: Sequence[Path], settings: Sequence[Setting], limits: Limits
) -> tuple[list[list[float]], list[float]]:
    """Time reads from memory: all files stay open, in every round the next contender goes first."""
    pagecache.warm(files)
    held = [pagecache.resident(files)]
    sessions = [setting.open(job) for setting in settings]
    for session in sessions:
        _time(session)
    times: list[list[float]] = [[] for _ in sessions]
    gc.collect()
    gc.disable()
    begin = time.perf_counter()
    for turn in range(_MOST):
        for place in range(len(sessions)):
            index = (turn + place) % len(sessions)
            times[index].append(_time(sessions[index]))
        is_late = time.perf_counter() - begin > limits.seconds
        if turn + 1 >= limits.rounds and (is_late or all(map(_is_sure, times))):
            break
    gc.enable()
    for session in sessions:
        session.close()
    return times, [*held, pagecache.resident(files)]


def _is_sure(times: list[float]) -> bool:
    """Tell whether the median is known well: its standard error, from the quartiles, for a normal distribution."""
    low, middle, high = np.percentile(times, (25, 50, 75))
    return bool(1.2533 * (high - low) / 1.349 / np.sqrt(len(times)) < _SURE * middle)


def _cold(
    job: Job, files: Sequence[Path], settings: Sequence[Setting], limits: Limits
) -> tuple[list[list[float]], list[float]]:
    """Time reads from the device: one file is open at a time, for pages that someone has mapped cannot be dropped."""
    times: list[list[float]] = [[] for _ in settings]
    held = []
    begin = time.perf_counter()
    for turn in range(_MOST):
        for place in range(len(settings)):
            index = (turn + place) % len(settings)
            session = settings[index].open(job)
            session.prepare()
            pagecache.drop(files)
            held.append(pagecache.resident(files))
            start = time.perf_counter()
            session.read()
            times[index].append(time.perf_counter() - start)
            session.close()
        if turn + 1 >= limits.rounds and time.perf_counter() - begin > limits.seconds:
            break
    return times, held
