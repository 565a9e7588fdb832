"""Turns: contenders that run one after another, another one first in each round, and what others did meanwhile."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

Contender = TypeVar("Contender", bound=Hashable)
Result = TypeVar("Result")

QUIET = 0.2
"""Cores that others may use before figures are doubtful."""
_GLANCE = 3.0
"""Seconds over which it is seen whether others are busy."""
_TICKS = os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM = 13, 14
"""Fields of /proc/<pid>/stat, counted from 0: time in user and in system mode (proc(5))."""


@dataclass(frozen=True, slots=True)
class Turns(Generic[Contender, Result]):
    """What all contenders gave."""

    results: dict[Contender, tuple[Result, ...]]
    """Of each contender, one for each round."""
    others: tuple[float, ...]
    """Cores that others used, in each round; of rounds below a second it says little."""
    repeated: int = 0
    """Rounds that do not count, because others were busy."""

    def figures(self, figure: Callable[[Result], float]) -> Turns[Contender, float]:
        """Return the same turns with one number of each result."""
        numbers = {each: tuple(map(figure, results)) for each, results in self.results.items()}
        return Turns(numbers, self.others, self.repeated)

    def median(self: Turns[Contender, float], contender: Contender) -> float:
        """Return the middle one of a contender's numbers."""
        return float(np.median(self.results[contender]))

    def ratios(self: Turns[Contender, float], one: Contender, other: Contender) -> tuple[float, ...]:
        """Return one contender's number as a multiple of another's, for each round."""
        pairs = zip(self.results[one], self.results[other], strict=True)
        return tuple(first / second for first, second in pairs)

    def error(self: Turns[Contender, float], contender: Contender) -> float:
        """Return the standard error of a median, from the quartiles, for a normal distribution."""
        numbers = self.results[contender]
        low, high = np.percentile(numbers, (25, 75))
        return float(1.2533 * (high - low) / 1.349 / math.sqrt(len(numbers)))


def rotated(contenders: Sequence[Contender], turn: int) -> tuple[Contender, ...]:
    """Return who runs after whom in a round; first is another one each time, for a machine may slow down."""
    first = turn % max(len(contenders), 1)
    return (*contenders[first:], *contenders[:first])


def in_turns(
    contenders: Sequence[Contender],
    rounds: int,
    run: Callable[[Contender], Result],
    *,
    patience: float = 0.0,
    is_enough: Callable[[Turns[Contender, Result]], bool] = lambda _: True,
) -> Turns[Contender, Result]:
    """Run all contenders once in each round.

    Parameters
    ----------
    contenders
        What `run` is given.
    rounds
        How many rounds count, at least.
    run
        Runs a contender and returns what is kept of it.
    patience
        Seconds for waiting until others are quiet, and for rounds that are repeated because others were not.
    is_enough
        Asked after so many rounds, and after each one more, whether there are enough.
    """
    end = time.monotonic() + patience
    found: dict[Contender, list[Result]] = {each: [] for each in contenders}
    others: list[float] = []
    repeated = 0

    def turns() -> Turns[Contender, Result]:
        return Turns({each: tuple(results) for each, results in found.items()}, tuple(others), repeated)

    while len(others) < rounds or not is_enough(turns()):
        await_quiet(end)
        bystanders = Bystanders()
        results = {each: run(each) for each in rotated(contenders, len(others))}
        used = bystanders.cores()
        if used > QUIET and time.monotonic() < end:
            repeated += 1
            continue
        others.append(used)
        for each, result in results.items():
            found[each].append(result)
    return turns()


def timed(calls: Mapping[str, Callable[[], object]], rounds: int) -> Turns[str, float]:
    """Return the seconds of calls that take turns."""
    return in_turns(tuple(calls), rounds, lambda name: seconds(calls[name]))


def seconds(call: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def await_quiet(end: float) -> None:
    """Return when others use hardly any core, or at the `end`, of the monotonic clock."""
    while time.monotonic() < end:
        bystanders = Bystanders()
        time.sleep(_GLANCE)
        if bystanders.cores() <= QUIET:
            return


class Bystanders:
    """Counts from its making on; two threads are no faster than one while somebody else has the second core."""

    def __init__(self) -> None:
        self._children = _children()
        self._start = time.perf_counter()
        self._busy, self._own = _busy(), _own(self._children)

    def cores(self) -> float:
        """Return how many cores were busy on average with other work than this process's and its children's."""
        passed = time.perf_counter() - self._start
        others = (_busy() - self._busy) - (_own(self._children) - self._own)
        return max(0.0, others / passed)


def _busy() -> float:
    """Return the seconds that all cores were not idle, those that a hypervisor took away included."""
    user, nice, system, _idle, _wait, hard, soft, stolen, *_ = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + hard + soft + stolen) / _TICKS


def _own(children: list[int]) -> float:
    """Return the seconds of this process, of those that it started and waited for, and of its living children."""
    ticks = 0
    for child in children:
        with suppress(FileNotFoundError):  # it has ended since, and is among those that were waited for
            fields = _fields(child)
            ticks += int(fields[_USER]) + int(fields[_SYSTEM])
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system + ticks / _TICKS


def _children() -> list[int]:
    """Return the processes that this one has started."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(word) for word in listed]


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat; the second one, the name, may hold spaces."""
    text = Path(f"/proc/{pid}/stat").read_text()
    name_end = text.rindex(")")
    return [str(pid), "", *text[name_end + 2 :].split()]
