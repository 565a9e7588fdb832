"""Training: the planners of all groups of a line, driven in virtual time.

What the executor does with threads, tiers, peers and readers is done here by a clock: the planners get the same events
and give the same instructions. Training is synchronous: a step begins on all groups when each has its batch, and takes
the same time on all. A slot is in use until the step that used it has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from voxload.errors import InternalError
from voxload.prefetch.events import Delivered
from voxload.prefetch.simulation.cluster import Cluster
from voxload.prefetch.simulation.ledger import Ledger
from voxload.prefetch.simulation.machine import Machine
from voxload.prefetch.simulation.rank import Plans, Rank, RankTiers, World
from voxload.prefetch.simulation.workload import Workload


class Training:
    """Runs the planners of one line.

    Parameters
    ----------
    machine, workload
        What is simulated.
    planners
        One for each group, with the plans of all epochs.
    progress
        Gets the number of steps done since the last call.
    """

    def __init__(
        self, machine: Machine, workload: Workload, planners: Sequence[Plans], *, progress: Callable[[int], None]
    ) -> None:
        self._compute = workload.compute
        self._progress = progress
        self._world = World(
            workload,
            Cluster(machine, groups=workload.line.groups, lines=workload.lines),
            [RankTiers(room) for room in workload.line.rooms],
            Ledger(),
            self._fill,
        )
        self._ranks = [Rank(group, planner, self._world) for group, planner in enumerate(planners)]
        self._epochs = [order.epoch for order in workload.orders for _ in range(order.steps)]
        # Groups without a block in a step: nothing of it comes out of their planners.
        self._takes_part = np.concatenate([(order.samples >= 0).any(axis=2) for order in workload.orders], axis=1)
        self._step = 0
        self._filled: Counter[int] = Counter()
        self._is_computing = False

    def run(self, slots: int) -> Ledger:
        """Train through all epochs with so many staging slots for each rank."""
        for rank in self._ranks:
            for _ in range(slots):
                rank.free_slot()
        while self._step < len(self._epochs):
            if not self._world.cluster.clock.advance():
                raise InternalError(
                    "simulation",
                    found=f"nothing happens any more at step {self._step} of {len(self._epochs)}",
                    remedy="please report it",
                )
        return self._world.ledger

    def _ranks_of(self, step: int) -> list[Rank]:
        return [self._ranks[group] for group in np.flatnonzero(self._takes_part[:, step])]

    def _fill(self, step: int) -> None:
        self._filled[step] += 1
        if step == self._step:
            self._begin_step()

    def _begin_step(self) -> None:
        """Begin the step at hand if every group has its batch."""
        taking = self._ranks_of(self._step)
        if self._is_computing or self._filled[self._step] < len(taking):
            return
        del self._filled[self._step]
        self._is_computing = True
        begin = self._world.now
        for rank in taking:
            rank.handle(Delivered(begin, self._step))
        self._world.cluster.clock.after(self._compute, lambda: self._end_step(begin))

    def _end_step(self, begin: float) -> None:
        self._world.ledger.step(self._epochs[self._step], begin=begin, end=self._world.now)
        self._progress(1)
        ended = self._ranks_of(self._step)
        self._step += 1
        self._is_computing = False
        if self._step < len(self._epochs):
            for rank in ended:
                rank.free_slot()
            self._begin_step()
