"""validate: setups run on this machine, and what was said of each beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from statistics import fmean
from typing import Any

from voxload.launch.processes import launch_ranks
from voxload.launch.wire import encode
from voxload.plan.forecast.exact import exact
from voxload.plan.forecast.forecast import Forecast, Oracle
from voxload.plan.forecast.pipelines import Pipelines
from voxload.plan.forecast.training import Training
from voxload.plan.platform.platform import Platform
from voxload.plan.validation.case import MeasuredStep, ValidationCase, ValidationPlan

__all__ = ["Compared", "MeasuredStep", "ValidationCase", "kendall", "predict", "validate"]

_SECONDS, _FEWEST, _MOST = 4.0, 4, 20
"""What steps of a case may take together, and how many of them there are."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What was said of a case, and what it took."""

    case: ValidationCase
    predicted: Forecast
    measured: MeasuredStep

    @property
    def accuracy(self) -> float:
        """Of the time of a step: 1 - |predicted - measured| / measured."""
        return 1 - abs(self.predicted.time.total - self.measured.total) / self.measured.total

    @property
    def memory_error(self) -> float:
        """Of memory, as a share of what was measured; blocks that wait are in neither."""
        use = self.predicted.memory.use
        return (use.total - use.staging) / self.measured.memory - 1


def predict(case: ValidationCase, platform: Platform) -> Forecast:
    """Return what is said of a case on one node."""
    training = Training(case.model, case.sample, case.groups * case.samples, case.optimizer, wrapper=case.wrapper)
    oracle = Oracle(training, platform, nodes=1)
    if case.stages > 1:
        return Pipelines(oracle).exact(case.setup, case.cuts)[0]
    return exact(oracle, case.setup, case.layers, case.recompute)[0]


def validate(
    told: Iterable[tuple[ValidationCase, Forecast]],
    *,
    jobs: int = 1,
    hear: Callable[[Compared], None] | None = None,
) -> list[Compared]:
    """Run cases on local processes, those of as many ranks in one job, and return what was said beside what it took.

    Parameters
    ----------
    told
        Cases, and what was said of them.
    jobs
        That run each case, one after the other: equal processes are not equally fast, and the mean of theirs counts.
    hear
        Hears of each case when it was run by all.

    Raises
    ------
    VoxloadError
        As `voxload.launch.processes.launch_ranks` does.
    """
    found: list[Compared] = []
    ordered = sorted(told, key=lambda each: each[0].ranks)
    for _, group in groupby(ordered, key=lambda each: each[0].ranks):
        together = list(group)
        planned = tuple(
            replace(case, rounds=_rounds(forecast, jobs), cuts=forecast.cuts) for case, forecast in together
        )
        several = [_run(tuple(replace(case, looks=False) for case in planned)) for _ in range(jobs - 1)]

        def listen(
            place: int,
            step: MeasuredStep,
            together: Sequence[tuple[ValidationCase, Forecast]] = together,
            several: Sequence[Sequence[MeasuredStep]] = several,
        ) -> None:
            found.append(Compared(*together[place], _mean([*(job[place] for job in several), step])))
            if hear is not None:
                hear(found[-1])

        _run(planned, listen)
    return found


def _run(
    cases: tuple[ValidationCase, ...], hear: Callable[[int, MeasuredStep], None] | None = None
) -> list[MeasuredStep]:
    """Return what cases of as many ranks take in one job; `hear` hears of each, with its place."""
    steps: list[MeasuredStep] = []

    def listen(event: dict[str, Any]) -> None:
        steps.append(MeasuredStep(**{name: value for name, value in event.items() if name != "event"}))
        if hear is not None:
            hear(len(steps) - 1, steps[-1])

    text = encode(ValidationPlan(cases)).decode()
    ranks = cases[0].ranks
    launch_ranks("voxload.plan.validation.worker", text, processes=ranks, subject="validation", hear=listen)
    return steps


def _mean(steps: Sequence[MeasuredStep]) -> MeasuredStep:
    """Return the means of what jobs took, and the most memory of any."""
    names = [each.name for each in fields(MeasuredStep) if each.name != "memory"]
    means = {name: fmean(getattr(step, name) for step in steps) for name in names}
    return MeasuredStep(**means, memory=max(step.memory for step in steps))


def _rounds(forecast: Forecast, jobs: int) -> int:
    return max(_FEWEST, min(_MOST, int(_SECONDS / jobs / max(forecast.time.total, 1e-3))))


def kendall(pairs: Sequence[tuple[float, float]]) -> float:
    """Return Kendall's tau-b of two rankings: 1 where all pairs are in the same order (Biometrika 33, 1945)."""
    agree = against = ties_one = ties_other = 0
    for place, (a, b) in enumerate(pairs):
        for c, d in pairs[place + 1 :]:
            one, other = (a > c) - (a < c), (b > d) - (b < d)
            agree += one * other > 0
            against += one * other < 0
            ties_one += not one
            ties_other += not other
    count = len(pairs) * (len(pairs) - 1) // 2
    whole = ((count - ties_one) * (count - ties_other)) ** 0.5
    return (agree - against) / whole if whole else 1.0
