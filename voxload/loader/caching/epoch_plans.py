"""EpochPlans: the plans of this rank, epoch by epoch, made as far ahead as orders are known.

What it says is never what the consumer sees: batches come from the real sampler. Where that draws otherwise than was
foreseen, the rest of the epoch is planned from what it drew, for this rank alone: the other groups may not have
noticed, and go on planning as before. Blocks are then not where they are thought to be, and come from the storage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from voxload.prefetch.line import DISK, MEMORY, STORAGE, EpochOrder, Held, Ints, Line
from voxload.prefetch.order.batches import assemble
from voxload.prefetch.order.source import OrderSource
from voxload.prefetch.placement import RankPlan
from voxload.prefetch.policies.protocol import Policy

_AHEAD = 3
"""Epochs looked at beyond the one that is placed: in nearly all of them a sample occurs once, so that the next use of
each is among them, and which group uses it most is guessed well enough."""


@dataclass(frozen=True, slots=True)
class LineMembers:
    """The line of this rank, and how its groups tell each other what cannot be replayed."""

    line: Line
    group: int
    """This rank's place on it."""
    gather: Callable[[Ints], Sequence[Ints]]
    """Returns what each group gave, by group."""
    holds: Callable[[int, int], bool]
    """Whether this rank's own tier holds a sample's block: tier, sample."""


class EpochPlans:
    """Plans one epoch after the other; used by one thread at a time.

    Parameters
    ----------
    source
        The orders.
    policy
        Who keeps what.
    members
        The line.
    held
        What the tiers hold at the start.
    epochs
        Epochs that there will be; None where that is open.
    is_clairvoyant
        Whether orders beyond the epoch at hand are used.
    """

    def __init__(
        self,
        source: OrderSource,
        policy: Policy,
        members: LineMembers,
        *,
        held: Held,
        epochs: int | None,
        is_clairvoyant: bool,
    ) -> None:
        self.source = source
        self._policy = policy
        self._members = members
        self._epochs = epochs
        self._is_clairvoyant = is_clairvoyant
        # The state before each epoch that was placed, and behind the last one.
        self._states: dict[int, Any] = {0: policy.begin(members.line, held)}
        self._plans: dict[int, RankPlan] = {}

    def begin(self) -> bool:
        """Begin the next epoch, right before its iterator is made; returns whether its plan, if there is one, holds."""
        holds = self.source.begin_epoch()
        if not holds:
            self._forget(self.source.epoch)
        return holds

    def drawn(self, batches: Sequence[Sequence[int]]) -> None:
        """Learn what the sampler drew for the whole epoch begun last, which was not foreseen or foreseen wrongly."""
        self.source.observe(batches)
        self._forget(self.source.epoch + 1)

    @property
    def is_foreseen(self) -> bool:
        """Whether the order of the epoch begun last is known before it is drawn."""
        return self.source.horizon.epochs != 0

    def plan(self, epoch: int) -> RankPlan | None:
        """Return the plan of an epoch, the one begun last or a later one; None where its order is not known yet."""
        if self._epochs is not None and epoch >= self._epochs and epoch > self.source.epoch:
            return None
        for coming in range(min(self._states.keys() - self._plans.keys(), default=epoch + 1), epoch + 1):
            if coming in self._plans:
                continue
            if coming < self.source.epoch:  # nothing was drawn of it
                self._states[coming + 1] = self._states[coming]
                continue
            orders = self._orders(coming)
            if not orders:
                return None
            state = self._states[coming]
            placement, self._states[coming + 1] = self._policy.place(state, orders[0], orders[1:])
            self._plans[coming] = placement.of(self._members.group)
        self._let_go(self.source.epoch)
        return self._plans.get(epoch)

    def _orders(self, epoch: int) -> tuple[EpochOrder, ...]:
        """Return the order of an epoch, and those behind it as far as they are used."""
        first = max(self.source.epoch, 0)
        if not self._is_clairvoyant and epoch > first:
            return ()
        beyond = _AHEAD if self._is_clairvoyant else 0
        if self._epochs is not None:
            beyond = max(0, min(beyond, self._epochs - 1 - epoch))
        count = epoch - first + 1 + beyond
        own = self.source.own_ahead(count)[epoch - first :]
        if self._members.line.groups == 1:
            return tuple(EpochOrder(epoch + place, order[None]) for place, order in enumerate(own))
        if self.source.horizon.is_of_line:
            return self.source.ahead(count)[epoch - first :]
        # How far ahead an order is known each rank knows for itself; of the epoch at hand all ranks come to know it.
        if not own or epoch > first:
            return ()
        return (assemble(epoch, self._members.gather(own[0])),)

    def alone(self, step: int, batches: Sequence[Sequence[int]], *, drops: RankPlan | None) -> RankPlan:
        """Return a plan for the rest of an epoch that was drawn otherwise: own tiers, else the storage.

        Parameters
        ----------
        step
            Number of its first step.
        batches
            What the sampler drew.
        drops
            The plan that it takes the place of: what was to be dropped still is, for others count on the room.
        """
        longest = max(map(len, batches), default=0)
        samples = np.full((len(batches), longest), -1, np.int64)
        for row, batch in enumerate(batches):
            samples[row, : len(batch)] = batch
        tier = np.full(samples.shape, STORAGE, np.int8)
        for at in np.argwhere(samples >= 0).tolist():
            sample = int(samples[tuple(at)])
            tier[tuple(at)] = next((one for one in (MEMORY, DISK) if self._members.holds(one, sample)), STORAGE)
        owner = np.where(tier == STORAGE, -1, self._members.group).astype(np.int32)
        late = slice(0, 0) if drops is None else slice(int(np.searchsorted(drops.drop_steps, step)), None)
        nothing = np.zeros(0, np.int64)
        return RankPlan(
            epoch=max(self.source.epoch, 0),
            first_step=step,
            samples=samples,
            owner=owner,
            tier=tier,
            ready=np.full(samples.shape, step, np.int64),
            keep=np.full(samples.shape, STORAGE, np.int8),
            drop_steps=nothing if drops is None else np.minimum(drops.drop_steps[late], step + len(batches)),
            drop_samples=nothing if drops is None else drops.drop_samples[late],
        )

    def _forget(self, epoch: int) -> None:
        """Forget the plans of an epoch and of those behind it."""
        for later in [other for other in self._plans if other >= epoch]:
            del self._plans[later]
        for later in [other for other in self._states if other > epoch]:
            del self._states[later]

    def _let_go(self, epoch: int) -> None:
        """Forget what lies before an epoch."""
        for earlier in [other for other in self._plans if other < epoch]:
            del self._plans[earlier]
        for earlier in [other for other in self._states if other < epoch]:
            del self._states[earlier]


def starting_at(plan: RankPlan, step: int) -> RankPlan:
    """Return the same plan begun no earlier than at a step."""
    late = step - plan.first_step
    if late <= 0:
        return plan
    return replace(plan, first_step=step, ready=plan.ready + late, drop_steps=plan.drop_steps + late)


def with_late_drops(plan: RankPlan, earlier: RankPlan, step: int) -> RankPlan:
    """Return a plan that also drops what an earlier one would have dropped from a step on, and no longer will."""
    late = earlier.drop_samples[np.searchsorted(earlier.drop_steps, step) :]
    return replace(
        plan,
        drop_steps=np.concatenate([np.full(len(late), plan.first_step, np.int64), plan.drop_steps]),
        drop_samples=np.concatenate([late, plan.drop_samples]),
    )
