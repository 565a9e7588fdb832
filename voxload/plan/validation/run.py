"""validate: setups run on this machine, and what was said of each beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from voxload.engine import SplitPlan
from voxload.launch.processes import launch_ranks
from voxload.launch.wire import encode
from voxload.plan.forecast.exact import exact
from voxload.plan.forecast.forecast import Forecast, Oracle
from voxload.plan.forecast.setups import Setup
from voxload.plan.forecast.training import Training
from voxload.plan.platform.platform import Platform
from voxload.plan.validation.case import MeasuredStep, ValidationCase, ValidationPlan

__all__ = ["Compared", "MeasuredStep", "ValidationCase", "kendall", "predict", "validate"]

_SECONDS, _FEWEST, _MOST = 6.0, 4, 25
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
    training = Training(case.model, case.sample, case.groups * case.samples, case.optimizer)
    setup = Setup(case.spatial, case.groups, case.samples)
    split = SplitPlan.of(case.layers) if case.layers else None
    return exact(Oracle(training, platform, nodes=1), setup, split)[0]


def validate(
    told: Iterable[tuple[ValidationCase, Forecast]], *, hear: Callable[[Compared], None] | None = None
) -> list[Compared]:
    """Run cases on local processes, those of as many ranks in one job, and return what was said beside what it took.

    Raises what `voxload.launch.processes.launch_ranks` raises.
    """
    found: list[Compared] = []
    ordered = sorted(told, key=lambda each: each[0].ranks)
    for ranks, group in groupby(ordered, key=lambda each: each[0].ranks):
        together = list(group)
        planned = tuple(replace(case, rounds=_rounds(forecast)) for case, forecast in together)
        steps = iter(together)

        def listen(event: dict[str, Any], steps: Iterator[tuple[ValidationCase, Forecast]] = steps) -> None:
            values = {name: value for name, value in event.items() if name != "event"}
            found.append(Compared(*next(steps), MeasuredStep(**values)))
            if hear is not None:
                hear(found[-1])

        text = encode(ValidationPlan(planned)).decode()
        launch_ranks("voxload.plan.validation.worker", text, processes=ranks, subject="validation", hear=listen)
    return found


def _rounds(forecast: Forecast) -> int:
    return max(_FEWEST, min(_MOST, int(_SECONDS / max(forecast.time.total, 1e-3))))


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
