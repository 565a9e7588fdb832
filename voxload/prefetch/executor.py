"""Executor: carries out what a planner says, with threads, tiers, peers and readers.

Rules of this file:

1. Only the driver's thread talks to the planner. Whatever happens elsewhere reaches it through one queue.
2. A slot's arrays are held here while the slot is filled, then by the consumer alone: with the last of them the slot
   comes back.
3. A fetch that failed wrote into nothing but its own places, and has ended: they may be written to again.
4. What a storage read raised is raised to the consumer in place of its batch; later batches are unharmed.
5. Dropping the executor stops its threads: what has not begun is cancelled, what has begun ends by itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from voxload.prefetch.driver import Driver
from voxload.prefetch.means import Batch, Means, Slots
from voxload.prefetch.placement import RankPlan
from voxload.prefetch.planner import Planner


class Executor:
    """Runs one rank's planner; `take` is for one consumer, everything else for its owner.

    Parameters
    ----------
    planner
        Which nobody else uses.
    means
        What plans are carried out with.
    slots
        Makes the staging slots, given what to call whenever one came back.
    """

    def __init__(self, planner: Planner, means: Means, slots: Callable[[Callable[[], None]], Slots]) -> None:
        self._driver = Driver(planner, means)
        self._driver.begin(slots(self._driver.notify))
        self._stop = weakref.finalize(self, self._driver.stop)

    def extend(self, plan: RankPlan) -> None:
        """Append the plan of the epoch behind the last one."""
        self._driver.call(lambda planner: planner.extend(plan))

    def cut(self, step: int) -> None:
        """Forget what was planned from a step on: other samples are wanted."""
        self._driver.cut(step)

    def take(self, step: int, timeout: float | None = None) -> Batch:
        """Return the batch of a step, the next one that was not taken yet; waits for it.

        Raises
        ------
        TimeoutError
            When it takes longer than the time-out, in seconds.
        VoxloadError
            What reading one of its blocks raised; the step counts as taken.
        """
        return self._driver.take(step, timeout)

    def is_ready(self, step: int) -> bool:
        """Tell whether `take` would return or raise at once."""
        return self._driver.is_ready(step)

    def close(self) -> None:
        """Stop all threads, and wait for those that end soon; no other call may run or follow."""
        self._stop()
        self._driver.join()
