"""Prefetched batches: those of all epochs, fetched ahead of their use from wherever they are nearest.

Rules of this file:

1. What the consumer gets is what the real sampler drew. Plans only say what is fetched before that.
2. One epoch is under way at a time: an iterator that was left early ends with the beginning of the next one.
3. The plan of the next epoch is made by a thread of its own while this one runs: its first batch is as ready as any.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, takewhile

import torch

from voxload.loader.batch import Batch, Foreseen
from voxload.loader.caching.epoch_plans import EpochPlans, starting_at, with_late_drops
from voxload.prefetch.execution import resources
from voxload.prefetch.execution.executor import Executor
from voxload.prefetch.order.batches import materialise
from voxload.prefetch.placement import RankPlan
from voxload.readers.protocol import ReadCost

Drawn = Iterator[Sequence[int]]
_DRAWN_AHEAD = 2**16
"""Batches that are drawn ahead from a sampler that cannot be foreseen: it may have no end."""


class PrefetchedBatches:
    """Runs one rank's plans; owned by the loader and used by its consumer's thread.

    Parameters
    ----------
    epoch_plans
        The plans.
    runner
        Carries them out.
    samples
        Length of the data set.
    """

    def __init__(self, epoch_plans: EpochPlans, runner: Executor, samples: int) -> None:
        self.runner = runner
        self.samples = samples
        self._epoch_plans = epoch_plans
        self._planning = ThreadPoolExecutor(1, thread_name_prefix="voxload-planning")
        self._coming: Future[RankPlan | None] | None = None
        self._appended: dict[int, RankPlan] = {}
        self._end = 0
        self._owed: tuple[RankPlan, int] | None = None
        self._user: weakref.ref[PrefetchedEpoch] | None = None
        self._place: tuple[RankPlan, int] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether an iterator is under way that somebody still holds."""
        user = self._user() if self._user is not None else None
        return user is not None and not user.is_over

    def begin(self) -> None:
        """Begin an epoch, right before its iterator is made; one that was left early ends here."""
        self._append_coming()
        if self._place is not None:
            self.leave(*self._place)
        if not self._epoch_plans.begin():
            self._cut(min((plan.first_step for plan in self._appended.values()), default=self._end))

    def epoch(self, drawn: Drawn, timeout: float | None) -> PrefetchedEpoch:
        """Return the batches of the epoch begun last."""
        number = self._epoch_plans.source.epoch
        plan = self._appended.pop(number, None)
        if plan is None:
            plan = self._epoch_plans.plan(number)
            if plan is None:
                batches, drawn = draw_ahead(drawn, self.samples)
                self._epoch_plans.drawn(batches)
                plan = self._epoch_plans.plan(number) or self._epoch_plans.alone(self._end, batches, drops=None)
            plan = self._append(plan)
        self._coming = self._planning.submit(self._epoch_plans.plan, number + 1)
        found = PrefetchedEpoch(self, plan, drawn, timeout)
        self._user = weakref.ref(found)
        return found

    def reached(self, plan: RankPlan, step: int) -> None:
        """Note that the consumer wants a step; the next epoch's plan is appended as soon as it is made."""
        self._place = (plan, step)
        if self._coming is not None and self._coming.done():
            self._append_coming()

    def leave(self, plan: RankPlan, step: int) -> None:
        """End an epoch of which nothing is wanted from a step on."""
        self._place = None
        if step < plan.first_step + len(plan.samples):
            self._cut(step)
            self._owed = (plan, step)

    def redraw(self, plan: RankPlan, step: int, batches: Sequence[Sequence[int]], *, before: int) -> RankPlan:
        """Return another plan for an epoch, from a step on, which was drawn otherwise.

        `batches` are what the sampler drew in the epoch, of which so many lie `before` the step.
        """
        self._append_coming()
        self._cut(step)
        self._epoch_plans.drawn(batches)
        return self._append(self._epoch_plans.alone(step, batches[before:], drops=plan))

    def close(self) -> None:
        """Stop planning and fetching; no other call may run or follow."""
        self._planning.shutdown(wait=True, cancel_futures=True)
        self.runner.close()

    def _append_coming(self) -> None:
        """Wait for the plan of the next epoch, and append it."""
        coming, self._coming = self._coming, None
        plan = coming.result() if coming is not None else None
        if plan is not None:
            self._appended[plan.epoch] = self._append(plan)

    def _append(self, plan: RankPlan) -> RankPlan:
        """Let a plan be carried out behind the last one; return it as it then is."""
        plan = starting_at(plan, self._end)
        if self._owed is not None:
            plan, self._owed = with_late_drops(plan, *self._owed), None
        self._end = plan.first_step + len(plan.samples)
        self.runner.extend(plan)
        return plan

    def _cut(self, step: int) -> None:
        """Forget what is planned from a step on."""
        self.runner.cut(step)
        self._end = step
        self._appended.clear()


class PrefetchedEpoch:
    """The batches of one epoch; used by one thread.

    Parameters
    ----------
    owner
        Which made it.
    plan
        What is fetched.
    drawn
        What the real sampler draws.
    timeout
        Seconds to wait for one batch; None waits for as long as it takes. Who asks again gets the same batch.
    """

    def __init__(self, owner: PrefetchedBatches, plan: RankPlan, drawn: Drawn, timeout: float | None) -> None:
        self._owner = owner
        self._plan = plan
        self._drawn = drawn
        self._timeout = timeout
        self._past: list[tuple[int, ...]] = []
        self._wanted: tuple[int, ...] | None = None
        self._step = plan.first_step
        self.taken = 0
        self.seconds_on_device = 0.0
        self.is_over = False

    def next(self) -> Batch | None:
        """See Batches."""
        if self._wanted is None and not self.is_over:
            self._wanted = self._draw()
        indices = self._wanted
        if indices is None:
            self._finish()
            return None
        try:
            found = self._owner.runner.take(self._step, self._timeout)
        except TimeoutError:
            # The words of torch's own loader: programs look for them.
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds") from None
        except BaseException:
            self._advance()
            raise
        self._advance()
        return _batch(indices, found)

    def ready(self) -> bool:
        """See Batches."""
        if self._wanted is None and not self.is_over:
            self._wanted = self._draw()
        return self._wanted is None or self._owner.runner.is_ready(self._step)

    def foreseen(self) -> Foreseen | None:
        """See Batches."""
        row = self._row(self._step - self._plan.first_step)
        return Foreseen(row or None)

    def _advance(self) -> None:
        self._wanted = None
        self._step += 1
        self.taken += 1
        self._owner.reached(self._plan, self._step)

    def _draw(self) -> tuple[int, ...] | None:
        """Return what the sampler draws next; plan anew where that was not foreseen."""
        drawn = next(self._drawn, None)
        if drawn is None:
            return None
        samples = self._owner.samples
        for index in drawn:
            if not -samples <= index < samples:
                self.taken += 1
                raise IndexError(f"sample {index} of a data set of {samples}")
        indices = tuple(int(index) % samples for index in drawn)
        place = self._step - self._plan.first_step
        if self._row(place) != indices:
            batches, self._drawn = draw_ahead(chain([indices], self._drawn), samples)
            next(self._drawn)
            self._plan = self._owner.redraw(self._plan, self._step, [*self._past, *batches], before=len(self._past))
        self._past.append(indices)
        return indices

    def _row(self, place: int) -> tuple[int, ...]:
        """Return the samples of a batch of the plan, counted from 0; none behind its end."""
        if place >= len(self._plan.samples):
            return ()
        row = self._plan.samples[place]
        return tuple(row[row >= 0].tolist())

    def _finish(self) -> None:
        """End the epoch; what was foreseen beyond its end is forgotten."""
        if not self.is_over:
            self.is_over = True
            beyond = self._plan.samples[self._step - self._plan.first_step :]
            self._owner.leave(self._plan, self._step if (beyond >= 0).any() else self._step + len(beyond))


def draw_ahead(drawn: Drawn, samples: int) -> tuple[list[tuple[int, ...]], Drawn]:
    """Draw from a sampler that cannot be foreseen, as far as is reasonable; return that, and all that it draws.

    Where it draws what is no sample, the stretch ends; who comes there is told.
    """
    batches, every = materialise(drawn, _DRAWN_AHEAD)
    good = takewhile(lambda batch: all(-samples <= index < samples for index in batch), batches)
    return [tuple(int(index) % samples for index in batch) for batch in good], every


def _batch(indices: tuple[int, ...], found: resources.FilledSlot) -> Batch:
    """Return a step's slot as the consumer sees it."""
    count = len(indices)
    arrivals = [found.arrivals[place] for place in range(count)]
    targets = [arrival.targets for arrival in arrivals if arrival.targets is not None]
    return Batch(
        indices=indices,
        volumes=tuple(torch.from_numpy(array[:count]) for array in found.arrays),
        targets=torch.stack(targets) if targets else None,
        cost=sum((arrival.cost for arrival in arrivals), ReadCost()),
    )
