"""Clock: times all contenders of a table in turn."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np

from bench.reading.contender import Entry, Job, Session, Setting
from bench.reading.results import Result, Timing
from voxload.benchmark.cold.pagecache import evict, resident_share, warm
from voxload.benchmark.measure.turns import Bystanders, Turns, in_turns, seconds

_TRIES = 4
"""Reads of each setting before the fastest is kept."""
_SURE = 0.02
"""Relative error of every median at which more rounds would change nothing."""
_QUIET = 0.1
"""Cores that others may use before a table is timed again; which try is kept depends on this alone."""
_MOST = 60
"""Rounds at most."""

Times = Turns[str, float]
"""Seconds by the titles of contenders."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a table may take."""

    rounds: int
    """Rounds at least."""
    seconds: float
    """After this time no further round begins once there were enough."""
    tries: int
    """How often a table is timed at most, for as long as others keep the machine busy."""

    def reached(self) -> Callable[[Times], bool]:
        """Return what tells, after each round from now on, whether the time is up or there are rounds enough."""
        end = time.perf_counter() + self.seconds
        return lambda turns: len(turns.others) >= _MOST or time.perf_counter() > end


def measure(job: Job, entries: Sequence[Entry], limits: Limits) -> Result:
    """Choose each contender's setting, compare its result, and time all of them in turn."""
    files = job.sample.files()
    warm(files)
    chosen = {entry: _fastest(job, entry) for entry in entries}
    field = {entry: setting for entry, setting in chosen.items() if _is_right(job, setting)}
    run = _cold if job.case.is_cold else _warm
    settings = {entry.title: setting for entry, setting in field.items()}
    tries = []
    for _ in range(limits.tries):
        bystanders = Bystanders()
        times, held = run(job, files, settings, limits)
        tries.append((bystanders.cores(), times, held))
        if tries[-1][0] < _QUIET:
            break
    others, times, held = min(tries, key=itemgetter(0))
    return Result.of(
        job,
        resident=(min(held), max(held)),
        bystander_cores=others,
        wrong=tuple(entry.title for entry in entries if entry not in field),
        contenders=tuple(
            Timing(entry.peer, _title(entry, setting), entry.threads, times.results[entry.title])
            for entry, setting in field.items()
        ),
    )


def _title(entry: Entry, setting: Setting) -> str:
    return f"{entry.title} ({setting.label})" if setting.label else entry.title


def _fastest(job: Job, entry: Entry) -> Setting:
    """Return the setting whose shortest of a few reads is the shortest."""
    if len(entry.settings) == 1:
        return entry.settings[0]
    shortest = []
    for setting in entry.settings:
        with closing(setting.open(job)) as session:
            shortest.append(min(_time(session) for _ in range(_TRIES)))
    return entry.settings[int(np.argmin(shortest))]


def _is_right(job: Job, setting: Setting) -> bool:
    """Tell whether one read fills the whole buffer with what was written."""
    with closing(setting.open(job)) as session:
        session.out.view(np.uint8)[...] = 0xA5
        session.prepare()
        session.read()
        return np.array_equal(session.out.view(np.uint8), job.expected.view(np.uint8))


def _time(session: Session) -> float:
    """Return the seconds of one read."""
    session.prepare()
    return seconds(session.read)


def _warm(
    job: Job, files: Sequence[Path], settings: Mapping[str, Setting], limits: Limits
) -> tuple[Times, list[float]]:
    """Time reads from memory: all files stay open."""
    warm(files)
    held = [resident_share(files)]
    with ExitStack() as stack:
        sessions = {title: stack.enter_context(closing(each.open(job))) for title, each in settings.items()}
        for session in sessions.values():
            _time(session)
        gc.collect()
        gc.disable()
        is_late = limits.reached()
        times = in_turns(
            tuple(sessions),
            limits.rounds,
            lambda title: _time(sessions[title]),
            is_enough=lambda turns: is_late(turns) or _is_sure(turns),
        )
        gc.enable()
    return times, [*held, resident_share(files)]


def _is_sure(turns: Times) -> bool:
    """Tell whether all medians are known well."""
    return all(turns.error(title) < _SURE * turns.median(title) for title in turns.results)


def _cold(
    job: Job, files: Sequence[Path], settings: Mapping[str, Setting], limits: Limits
) -> tuple[Times, list[float]]:
    """Time reads from the device: one file is open at a time, for pages that someone has mapped cannot be dropped."""
    held = []

    def run(title: str) -> float:
        with closing(settings[title].open(job)) as session:
            session.prepare()
            evict(files)
            held.append(resident_share(files))
            return seconds(session.read)

    return in_turns(tuple(settings), limits.rounds, run, is_enough=limits.reached()), held
