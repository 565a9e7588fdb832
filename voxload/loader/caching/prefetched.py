"""Prefetched batches: those of all epochs, fetched ahead of their use from wherever they are nearest.

Rules of this file:

1. What the consumer gets is what the real sampler drew, or was dealt in its place. Plans only say what is fetched
   before that.
2. One epoch is under way at a time: an iterator that was left early ends with the beginning of the next one.
3. The plan of the next epoch is made by a thread of its own while this one runs: its first batch is as ready as any.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, takewhile
from typing import Protocol, cast

from voxload.errors import UsageError
from voxload.loader.batch import Batch, Foreseen
from voxload.loader.caching.epoch_plans import EpochPlan, EpochPlans, starting_at, with_late_drops
from voxload.loader.caching.items import BatchFilling, Items
from voxload.loader.order.repeats import Passed
from voxload.prefetch.execution.resources import Filling
from voxload.prefetch.order.batches import materialise
from voxload.prefetch.placement import RankPlan

Drawn = Iterator[Sequence[int]]
_DRAWN_AHEAD = 2**16
"""Batches that are drawn ahead from a sampler that cannot be foreseen: it may have no end."""


class Runner(Protocol):
    """What carries plans out; an Executor does."""

    def extend(self, plan: RankPlan) -> None:
        """Append the plan of the epoch behind the last one."""
        ...

    def cut(self, step: int) -> None:
        """Forget what was planned from a step on."""
        ...

    def take(self, step: int, timeout: float | None = None) -> Filling:
        """Return the batch of the next step; raises as `Executor.take` does."""
        ...

    def is_ready(self, step: int) -> bool:
        """Tell whether `take` would return or raise at once."""
        ...

    def close(self) -> None:
        """Stop all threads."""
        ...


class PrefetchedBatches:
    """Runs one rank's plans; owned by the loader and used by its consumer's thread.

    Parameters
    ----------
    epoch_plans
        The plans.
    runner
        Carries them out.
    items
        How samples are made.
    """

    def __init__(self, epoch_plans: EpochPlans, runner: Runner, items: Items) -> None:
        self.runner = runner
        self.samples = items.samples
        self._items = items
        self._epoch_plans = epoch_plans
        self._planning = ThreadPoolExecutor(1, thread_name_prefix="voxload-planning")
        self._coming: Future[EpochPlan | None] | None = None
        self._appended: dict[int, EpochPlan] = {}
        self._end = 0
        self._owed: tuple[EpochPlan, int] | None = None
        self._user: weakref.ref[PrefetchedEpoch] | None = None
        self._place: tuple[EpochPlan, int] | None = None
        self.is_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether an iterator is under way that somebody still holds."""
        user = self._user() if self._user is not None else None
        return user is not None and not user.is_over

    @property
    def has_more(self) -> bool:
        """Whether an iterator is under way that somebody still holds, and has not got all that it is foreseen to."""
        user = self._user() if self._user is not None else None
        return user is not None and not user.is_done

    def begin(self, number: int) -> None:
        """Begin the epoch of a number, right before its iterator is made; one that was left early ends here."""
        self._append_coming()
        if self._place is not None:
            self.leave(*self._place)
        if not self._epoch_plans.begin(number):
            self._cut(min((plan.first_step for plan in self._appended.values()), default=self._end))

    def epoch(self, drawn: Drawn, timeout: float | None, *, passed: Passed) -> PrefetchedEpoch:
        """Return the batches of the epoch begun last; `passed` says what of it was drawn before it goes on."""
        self._epoch_plans.passes(passed)
        number = self._epoch_plans.source.epoch
        plan = self._appended.pop(number, None)
        if plan is None:
            plan = self._epoch_plans.plan(number)
            if plan is None:
                batches, drawn = draw_ahead(drawn, self.samples)
                self._epoch_plans.drawn(batches)
                plan = self._planned(number, batches)
            plan = self._append(plan)
        drawn = self._epoch_plans.dealt(plan, drawn)
        self._coming = self._planning.submit(self._epoch_plans.plan, number + 1)
        found = PrefetchedEpoch(self, plan, drawn, timeout)
        self._user = weakref.ref(found)
        return found

    def reached(self, plan: EpochPlan, step: int) -> None:
        """Note that the consumer wants a step; the next epoch's plan is appended as soon as it is made."""
        self._place = (plan, step)
        if self._coming is not None and self._coming.done():
            self._append_coming()

    def leave(self, plan: EpochPlan, step: int) -> None:
        """End an epoch of which nothing is wanted from a step on."""
        self._place = None
        if step < plan.end:
            self._cut(step)
            self._owed = (plan, step)

    def redraw(self, plan: EpochPlan, step: int, batches: Sequence[Sequence[int]], *, before: int) -> EpochPlan:
        """Return another plan for an epoch, from a step on, which was drawn otherwise.

        `batches` are what the sampler drew in the epoch, of which so many lie `before` the step.
        """
        self._append_coming()
        self._cut(step)
        self._epoch_plans.drawn(batches)
        passed = [index for batch in batches[:before] for index in batch]
        return self._append(self._epoch_plans.alone(step, batches[before:], before=passed, drops=plan.units))

    def check_open(self) -> None:
        """Raise UsageError where this is closed, or its loader went on to other samples."""
        if self.is_closed:
            raise UsageError(
                "iterator of a DataLoader",
                found="a loader that was closed, or that reads another generation of its catalogue",
                expected="the iterator that was made last",
                remedy="begin another one",
            )

    def close(self) -> None:
        """Stop planning and fetching; iterators that somebody still holds raise UsageError if they are to go on."""
        self.is_closed = True
        self._planning.shutdown(wait=True, cancel_futures=True)
        self.runner.close()

    def _planned(self, number: int, batches: Sequence[Sequence[int]]) -> EpochPlan:
        """Return the plan of an epoch that was drawn."""
        found = self._epoch_plans.plan(number)
        return found or self._epoch_plans.alone(self._end, batches, before=(), drops=None)

    def _append_coming(self) -> None:
        """Wait for the plan of the next epoch, and append it."""
        coming, self._coming = self._coming, None
        plan = coming.result() if coming is not None else None
        if plan is not None:
            self._appended[plan.units.epoch] = self._append(plan)

    def _append(self, plan: EpochPlan) -> EpochPlan:
        """Let a plan be carried out behind the last one; return it as it then is."""
        plan = starting_at(plan, self._end)
        if self._owed is not None:
            plan, self._owed = with_late_drops(plan, *self._owed), None
        self._end = plan.end
        self._items.expect(plan.first_step, plan.items)
        self.runner.extend(plan.units)
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

    def __init__(self, owner: PrefetchedBatches, plan: EpochPlan, drawn: Drawn, timeout: float | None) -> None:
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
        self._owner.check_open()
        try:
            found = self._owner.runner.take(self._step, self._timeout)
        except TimeoutError:
            # The words of torch's own loader: programs look for them.
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds") from None
        except BaseException:
            self._advance()
            raise
        self._advance()
        return cast("BatchFilling", found).batch(indices)  # the executor fills what our blocks gave it

    def ready(self) -> bool:
        """See Batches."""
        if self._wanted is None and not self.is_over:
            self._wanted = self._draw()
        return self._wanted is None or self._owner.runner.is_ready(self._step)

    def foreseen(self) -> Foreseen | None:
        """See Batches."""
        return Foreseen(self._plan.samples(self._step) or None)

    @property
    def is_done(self) -> bool:
        """Whether nothing comes any more: it ended, or its last batch was taken."""
        return self.is_over or not self._plan.samples(self._step)

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
        if self._plan.samples(self._step) != indices:
            self._owner.check_open()
            batches, self._drawn = draw_ahead(chain([indices], self._drawn), samples)
            next(self._drawn)
            self._plan = self._owner.redraw(self._plan, self._step, [*self._past, *batches], before=len(self._past))
        self._past.append(indices)
        return indices

    def _finish(self) -> None:
        """End the epoch; what was foreseen beyond its end is forgotten."""
        if not self.is_over and not self._owner.is_closed:
            self.is_over = True
            beyond = self._plan.units.samples[self._step - self._plan.first_step :]
            self._owner.leave(self._plan, self._step if (beyond >= 0).any() else self._step + len(beyond))


def draw_ahead(drawn: Drawn, samples: int) -> tuple[list[tuple[int, ...]], Drawn]:
    """Draw from a sampler that cannot be foreseen, as far as is reasonable; return that, and all that it draws.

    Where it draws what is no sample, the stretch ends; who comes there is told.
    """
    batches, every = materialise(drawn, _DRAWN_AHEAD)
    good = takewhile(lambda batch: all(-samples <= index < samples for index in batch), batches)
    return [tuple(int(index) % samples for index in batch) for batch in good], every
