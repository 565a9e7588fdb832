"""Pipelines: what setups of several stages take, and where the network is best cut into these.

The network is cut wherever it can be, and its step is traced once as a chain of parts; stages are runs of parts. They
begin where the stage that takes longest is as short as it can be, messages to the next included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import inf

from voxload.engine import pipeline_cuts
from voxload.engine.shard import MIN_WIDTH
from voxload.errors import UsageError
from voxload.plan.costs.memory import MemoryPeak, memory_peak
from voxload.plan.costs.schedule import Pass, StagePasses, in_flight, run
from voxload.plan.costs.timeline import StepTime, step_time
from voxload.plan.forecast.forecast import Forecast, Oracle
from voxload.plan.forecast.parted import PartedNetwork
from voxload.plan.forecast.setups import Setup
from voxload.plan.trace.operation import Phase, StepTrace

_SUMMED = ("forward", "backward", "halos", "sums")
"""What a stage does with each microbatch."""


class Pipelines:
    """Says what setups with stages take; used by one thread.

    Parameters
    ----------
    oracle
        Says what is trained, and how fast operations and messages are.

    Raises
    ------
    UsageError
        When the network can be cut nowhere.
    """

    def __init__(self, oracle: Oracle) -> None:
        self._oracle, training = oracle, oracle.training
        if training.wrapper != "ddp":
            raise UsageError(
                "--stages", found=f"--wrapper {training.wrapper}", expected="ddp", remedy="plan pipelines without it"
            )
        self._model = training.network()
        cuts = pipeline_cuts(self._model, training.shape, channels=training.sample[0])
        if not cuts:
            raise UsageError(
                f"stages of {training.model}",
                found="no operation behind which it can be cut",
                expected="layers that follow each other",
                remedy="plan without --stages",
            )
        self._finest = PartedNetwork(training, self._model, [each.name for each in cuts])

    def forecast(self, setup: Setup) -> Forecast:
        """Return what a setup takes, cut where that is best.

        Raises
        ------
        UsageError
            When the network has not as many parts that can follow each other over this grid.
        """
        ends = self._best_ends(setup)
        chain, places = self._finest.on_blocks(setup), (0, *ends, len(self._finest.parts))
        stages = [chain.stage(first, last) for first, last in pairwise(places)]
        sent = [self._finest.nbytes(end, setup) for end in places]
        return self._forecast(setup, stages, sent, [self._finest.cuts[end - 1] for end in ends])

    def exact(self, setup: Setup, cuts: Sequence[str] = ()) -> tuple[Forecast, StepTrace]:
        """Return what a setup takes as the engine runs it, and a microbatch's step through all stages.

        `cuts` are where the network is cut; by default, where that is best.

        Raises
        ------
        UsageError
            As forecast, and when the network cannot be cut there, or what goes on cannot be sent over this grid.
        """
        given = tuple(cuts) or self.forecast(setup).cuts
        parted = PartedNetwork(self._oracle.training, self._model, given)
        chain = parted.traced(setup)
        stages = [chain.stage(number, number + 1) for number in range(setup.stages)]
        sent = [parted.nbytes(end, setup) for end in range(setup.stages + 1)]
        return self._forecast(setup, stages, sent, given), chain.step

    def _forecast(
        self, setup: Setup, stages: Sequence[StepTrace], sent: Sequence[int], cuts: Sequence[str]
    ) -> Forecast:
        return Forecast(
            setup,
            self._time(setup, stages, sent),
            self._memory(setup, stages, sent),
            self._oracle.limit(setup),
            watts=self._oracle.platform.device.watts,
            cuts=tuple(cuts),
        )

    def _best_ends(self, setup: Setup) -> tuple[int, ...]:
        """Return the parts that the stages behind the first begin with."""
        count = len(self._finest.parts)
        passes = [0.0, *accumulate(self._passes(setup))]
        trained = [0, *accumulate(each.trained for each in self._finest.sizes)]
        allowed = [*(end for end in range(1, count) if self._may_end(setup, end)), count]
        sending = {end: 2 * self._link(setup, self._finest.nbytes(end, setup)) for end in allowed[:-1]}

        def stage(first: int, last: int) -> float:
            # Optimisers, and what averages gradients, refuse to have no weights.
            return passes[last] - passes[first] + sending.get(last, 0.0) if trained[last] > trained[first] else inf

        # By where the stages so far end: the longest of them, and where they begin.
        best: dict[int, tuple[float, tuple[int, ...]]] = {end: (stage(0, end), ()) for end in allowed}
        for _ in range(setup.stages - 1):
            best = {
                end: min(
                    (max(longest, stage(begin, end)), (*before, begin))
                    for begin, (longest, before) in best.items()
                    if begin < end
                )
                for end in allowed
                if any(begin < end for begin in best)
            }
        longest, found = best.get(count, (inf, ()))
        if longest == inf:
            raise UsageError(
                f"stages of {self._oracle.training.model} over {setup.describe()}",
                found=f"no {setup.stages} that have weights each, among {len(allowed)} parts",
                expected="as many parts that can follow each other",
                remedy="take fewer stages, or fewer blocks",
            )
        return found

    def _may_end(self, setup: Setup, end: int) -> bool:
        """Tell whether what goes on there can be sent to the next stage: blocks go on alone, and cut as the grid is."""
        if setup.grid.group_size == 1:
            return True
        one, *others = self._finest.boundaries[end]
        extents = one.shape[2:] if len(one.shape) == 5 else ()
        pairs = zip(extents, setup.spatial, strict=bool(extents))
        return not others and all(ranks == 1 or extent >= MIN_WIDTH * ranks for extent, ranks in pairs)

    def _passes(self, setup: Setup) -> list[float]:
        """Return the seconds that parts take of a microbatch, forward and backward, on one rank."""
        kernels, fabric = self._oracle.speeds(setup)
        waits, chain = fabric.waits(setup.grid), self._finest.on_blocks(setup)
        found = [0.0] * len(self._finest.parts)
        for part, each in zip(chain.parts, chain.step.operations, strict=True):
            if each.phase is not Phase.UPDATE:
                found[part] += kernels.seconds(each) + waits.halos(each) + waits.sums(each)
        return found

    def _link(self, setup: Setup, nbytes: int) -> float:
        """Return the seconds of a message to the rank of the next stage that has the same place."""
        _, fabric = self._oracle.speeds(setup)
        blocks, rank = setup.grid.group_size, setup.grid.rank
        return fabric.beside(rank, (rank + blocks) % setup.ranks, blocks).message(nbytes)

    def _time(self, setup: Setup, stages: Sequence[StepTrace], sent: Sequence[int]) -> StepTime:
        """Return what the stage that computes most does in a step, and what it waits for the others."""
        kernels, fabric = self._oracle.speeds(setup)
        slowdown, count = self._oracle.slowdown, setup.microbatches
        times = [
            step_time(stage, kernels, fabric, setup.stage_grid(number), replicas=setup.replicas(number))
            for number, stage in enumerate(stages)
        ]
        whole = slowdown(setup, setup.ranks)
        passes = []
        for time, nbytes in zip(times, sent[1:], strict=True):
            before = time.until_backward - time.forward
            behind = time.halos + time.sums - before
            forward, backward = Pass(time.forward / whole, before), Pass(time.backward / whole, behind)
            passes.append(StagePasses(forward, backward, self._link(setup, nbytes)))
        ranks = setup.ranks // setup.stages
        ends = run(passes, count, lambda working: slowdown(setup, working * ranks))
        total = max(end + time.gradients + time.update for end, time in zip(ends, times, strict=True))
        busiest = max(times, key=lambda time: time.forward + time.backward)
        own = replace(busiest, **{name: count * getattr(busiest, name) for name in _SUMMED})
        # Where its ranks compute faster while others wait, its parts are shorter than they are with all at work.
        share = min(1.0, total / own.total)
        own = replace(own, **{name: share * getattr(own, name) for name in (*_SUMMED, "update", "gradients")})
        return replace(own, waiting=max(0.0, total - own.total), until_backward=total - own.update)

    def _memory(self, setup: Setup, stages: Sequence[StepTrace], sent: Sequence[int]) -> MemoryPeak:
        """Return the memory of the stage that has most."""
        found, last, count = [], len(stages) - 1, setup.microbatches
        for number, stage in enumerate(stages):
            peak = memory_peak(
                stage,
                replicas=len(setup.replicas(number)),
                staging=self._oracle.staging_bytes(setup) if number in (0, last) else 0,  # volumes, and targets
                device=self._oracle.platform.kind,
            )
            flying = in_flight(number, len(stages), count)
            taken, given = sent[number] * (number > 0), sent[number + 1] * (number < last)
            use = replace(
                peak.use,
                kept=peak.use.kept + (flying - 1) * _kept(stage),
                working=peak.use.working + _buffers(taken, given, count, flying),
                gradients=sum(each.nbytes for each in stage.gradients) if count > 1 else peak.use.gradients,
            )
            found.append(replace(peak, use=use))
        return max(found, key=lambda each: each.use.total)


def _kept(stage: StepTrace) -> int:
    """Return the bytes that a forward pass makes and its backward pass needs."""
    last = max((place for place, each in enumerate(stage.operations) if each.phase is Phase.FORWARD), default=-1)
    return sum(each.nbytes for each in stage.allocations if each.made <= last < each.freed)


def _buffers(taken: int, given: int, microbatches: int, flying: int) -> int:
    """Return the bytes that torch's pipelining keeps beside passes, of a stage that takes and gives so many.

    Buffers of what comes from both neighbours, of every microbatch, are there for good. What was sent is held for
    longer than needed: the result whose backward pass runs, the first one, which is none of those in flight where there
    are more microbatches, and the last gradient (measured with torch 2.13).
    """
    results = 2 if microbatches > flying else 1
    return microbatches * (taken + given) + results * given + (taken if microbatches > 1 else 0)
