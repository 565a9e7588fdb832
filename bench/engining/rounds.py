"""Rounds: trials that take turns, another one first in each round, and the medians of what they took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from bench.engining.world import Way, Worlds
from voxload.benchmark.measure.turns import Turns, in_turns


@dataclass(frozen=True, slots=True)
class Trial:
    """Something that is timed."""

    name: str
    """What tables say of it."""
    ranks: int
    way: Way
    is_ddp: bool = False
    updates: bool = True
    """Whether a step updates the weights."""

    @property
    def is_true(self) -> bool:
        """Whether it must predict what others do."""
        return self.way.is_true or (self.ranks == 1 and not self.way.of)


@dataclass(frozen=True, slots=True)
class Run:
    """A trial in one round."""

    seconds: float
    """Of the shortest step, of the slowest rank: what else the machine does only lengthens steps."""
    cpu: float
    """Of a step on average, of the busiest rank's threads."""
    waits: tuple[float, ...]
    """In the exchange, in a step on average, of each rank: one that comes late does not wait."""

    @property
    def shortest_wait(self) -> float:
        """Of the rank that waits least: what messages cost, more than late peers."""
        return min(self.waits)

    @property
    def longest_wait(self) -> float:
        """Of the rank that waits most."""
        return max(self.waits)


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is measured."""

    size: int
    rounds: int
    steps: int
    """Steps in a row, of which the shortest counts."""
    patience: float = 0.0
    """Seconds for waiting until others are quiet, and for rounds that are repeated because others were not."""
    tolerance: float = 1e-3
    """Relative difference of predictions that is rounding."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Of what kinds worlds are measured."""

    ranks: tuple[int, ...]
    """Numbers of ranks that share a sample."""
    joins: tuple[str, ...]
    """Ways of joining halos and blocks; the first is the one of which speed is asked."""
    itemsize: int
    """Bytes of a number."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """All runs of some trials."""

    turns: Turns[str, Run]
    """By name of a trial."""
    wrong: tuple[str, ...]
    """Trials that predicted something else than the first one."""

    def median(self, name: str, figure: str = "seconds") -> float:
        """Return the middle one of a figure of Run, seconds by default."""
        return self.turns.figures(attrgetter(figure)).median(name)

    def ratios(self, name: str, other: str, figure: str = "seconds") -> tuple[float, ...]:
        """Return one trial's figure as a multiple of another's, for each round."""
        return self.turns.figures(attrgetter(figure)).ratios(name, other)

    def document(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "others": self.turns.others,
            "repeated": self.turns.repeated,
            "wrong": self.wrong,
            "runs": {name: [asdict(run) for run in runs] for name, runs in self.turns.results.items()},
        }


def run_rounds(worlds: Worlds, trials: Sequence[Trial], pace: Pace) -> Rounds:
    """Run all trials in turn, after a run of each that is not counted."""
    predictions = {trial.name: _prepared(worlds, trial) for trial in trials}
    true = [predictions[trial.name] for trial in trials if trial.is_true]
    wrong = [
        f"{trial.name}: predicted {predictions[trial.name]}, others {true[0][0]}"
        for trial in trials
        if trial.is_true and any(_differs(each, true[0][0], pace.tolerance) for each in predictions[trial.name])
    ]
    by_name = {trial.name: trial for trial in trials}
    turns = in_turns(
        tuple(by_name), pace.rounds, lambda name: _time(worlds, by_name[name], pace.steps), patience=pace.patience
    )
    return Rounds(turns, tuple(wrong))


def _prepared(worlds: Worlds, trial: Trial) -> list[list[float]]:
    """Make a trial's networks ready; return what each rank's predicted before it had learned anything."""
    asked = worlds.of(trial.ranks).ask("prepare", trial.way, is_ddp=trial.is_ddp, updates=trial.updates)
    return [answer["prediction"] for answer in asked]


def _time(worlds: Worlds, trial: Trial, steps: int) -> Run:
    words = {"steps": steps, "is_ddp": trial.is_ddp, "updates": trial.updates}
    answers = worlds.of(trial.ranks).ask("train", trial.way, **words)
    return Run(
        seconds=max(answer["seconds"] for answer in answers),
        cpu=max(answer["cpu"] for answer in answers),
        waits=tuple(answer["waited"] for answer in answers),
    )


def _differs(found: Sequence[float], wanted: Sequence[float], tolerance: float) -> bool:
    error = np.abs(np.subtract(found, wanted)).max() / np.abs(wanted).max()
    return not error <= tolerance  # not a number differs, too


def milliseconds(seconds: float) -> str:
    """Return a time as text."""
    return f"{seconds * 1e3:.1f}"
