"""Checkpoints: which modules are to run again in the backward pass, so that a rank's memory suffices.

Greedy: one module more at a time, the one that saves most bytes for each second that it takes again, until the step
fits; then those that turned out not to be needed are left out.
"""

from __future__ import annotations

from dataclasses import replace

from voxload.plan.costs.memory import memory_peak
from voxload.plan.forecast.forecast import Forecast, Oracle
from voxload.plan.forecast.setups import Setup
from voxload.plan.trace.operation import Phase, StepTrace
from voxload.plan.trace.recompute import recomputed, regions

_SURE = 0.95
"""Share of a rank's memory that is counted on, before a step is traced as the engine runs it."""


class Checkpointer:
    """Chooses modules of one training; used by one thread.

    Parameters
    ----------
    oracle
        Says what setups take.
    """

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        # What has layers in it, but the whole; lists of modules are never called, and drop out as they have no calls.
        model = oracle.training.network()
        self._paths = [path for path, module in model.named_modules() if path and next(module.children(), None)]

    def forecast(self, setup: Setup, limit: int = 0) -> Forecast:
        """Return what a setup takes with the modules checkpointed that are to be, so that `limit` bytes suffice.

        Where they never do, with those that save memory. By default the limit is what a rank has, less what arithmetic
        may be off by.
        """
        trace = self._oracle.trace_of(setup)
        chosen = self._chosen(setup, trace, limit or int(_SURE * self._oracle.limit(setup)))
        return replace(self._oracle.forecast(setup, recomputed(trace, chosen)), recompute=tuple(chosen))

    def _chosen(self, setup: Setup, trace: StepTrace, limit: int) -> list[str]:
        seconds = self._seconds(setup, trace)
        chosen = list[str]()
        most = self._needs(setup, trace)
        while most[0] > limit:
            found = [
                (self._needs(setup, recomputed(trace, [*chosen, each])), each)
                for each in seconds
                if not any(_overlap(each, one) for one in chosen)
            ]
            better = [each for each in found if each[0] < most]
            if not better:
                break
            # Where two tensors are as large, one alone changes nothing at the peak: what is kept counts then.
            place = 0 if any(needs[0] < most[0] for needs, _ in better) else 1
            before = most[place]
            most, path = max(better, key=lambda each: (before - each[0][place]) / seconds[each[1]])
            chosen.append(path)
        for path in list(chosen):
            others = [each for each in chosen if each != path]
            if self._needs(setup, recomputed(trace, others))[0] <= limit:
                chosen = others
        return [path for path in self._paths if path in chosen]

    def _needs(self, setup: Setup, trace: StepTrace) -> tuple[int, int]:
        """Return the most bytes that a step has at once, and those that its backward pass begins with."""
        use = memory_peak(
            self._oracle.wrapped(setup, trace),
            replicas=setup.ranks,
            staging=self._oracle.staging_bytes(setup),
            device=self._oracle.platform.kind,
        ).use
        last = max((place for place, each in enumerate(trace.operations) if each.phase is Phase.FORWARD), default=-1)
        return use.total, sum(each.nbytes for each in trace.allocations if each.made <= last < each.freed)

    def _seconds(self, setup: Setup, trace: StepTrace) -> dict[str, float]:
        """Return what the forward pass of each module takes that can be checkpointed."""
        kernels, fabric = self._oracle.speeds(setup)
        waits = fabric.waits(setup.grid)
        found = dict[str, float]()
        for path in self._paths:
            for region in regions(trace, [path]):
                operations = trace.operations[region.first : region.last + 1]
                found[path] = found.get(path, 0.0) + sum(
                    kernels.seconds(each) + waits.halos(each) + waits.sums(each) for each in operations
                )
        return {path: max(seconds, 1e-9) for path, seconds in found.items()}


def _overlap(one: str, other: str) -> bool:
    """Tell whether a module lies in another, or is it.

    >>> _overlap("a.b", "a"), _overlap("a", "ab")
    (True, False)
    """
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")
