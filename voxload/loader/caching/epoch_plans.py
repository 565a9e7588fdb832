"""EpochPlans: the plans of this rank, epoch by epoch, made as far ahead as orders are known.

Orders are of samples, plans of the units that these are made of.

What it says is never what the consumer sees: batches come from the real sampler. Where that draws otherwise than was
foreseen, the rest of the epoch is planned from what it drew, for this rank alone: the other groups may not have
noticed, and go on planning as before. Blocks are then not where they are thought to be, and come from the storage.
Where samples of a global batch are dealt to who keeps them, what was dealt is planned, and it takes the place of what
the sampler draws; see dealing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from voxload.loader.caching.dealing import Dealing, DealtEpoch
from voxload.loader.caching.items import EpochItems, Items, repeats_of
from voxload.loader.order.repeats import Passed
from voxload.prefetch.line import DISK, MEMORY, STORAGE, EpochOrder, Held, Ints, Line
from voxload.prefetch.order.batches import assemble
from voxload.prefetch.order.source import OrderSource
from voxload.prefetch.placement import RankPlan
from voxload.prefetch.policies.protocol import Policy

_AHEAD = 3
"""Epochs looked at beyond the one that is placed: in nearly all of them a sample occurs once, so that the next use of
each is among them, and which group uses it most is guessed well enough."""
_AHEAD_DRAWN = 1
"""The same where each sample of each epoch has to be placed to know what it takes."""


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
    dealing: Dealing | None = None
    """What deals the samples of each global batch anew; None leaves each group what its sampler draws."""


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """What is brought in an epoch, or the rest of one, and for which samples."""

    units: RankPlan
    items: EpochItems
    """Of the plan's steps."""
    dealt: DealtEpoch | None = None
    """Where these are not what the samplers draw."""

    @property
    def first_step(self) -> int:
        """Number of its first step."""
        return self.units.first_step

    @property
    def end(self) -> int:
        """Number of the step behind its last one."""
        return self.units.first_step + len(self.units.samples)

    def samples(self, step: int) -> tuple[int, ...]:
        """Return the samples of a step; none beyond its end."""
        place = step - self.first_step
        if not 0 <= place < len(self.items.samples):
            return ()
        row = self.items.samples[place]
        return tuple(row[row >= 0].tolist())


@dataclass(frozen=True, slots=True)
class _Orders:
    """What is known of a coming epoch."""

    own: EpochItems
    """This group's samples."""
    units: tuple[EpochOrder, ...]
    """Of all groups, in it and behind it as far as they are used."""
    dealt: DealtEpoch | None = None


class EpochPlans:
    """Plans one epoch after the other; used by one thread at a time.

    Parameters
    ----------
    items
        How samples are made of units.
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
        items: Items,
        source: OrderSource,
        policy: Policy,
        members: LineMembers,
        *,
        held: Held,
        epochs: int | None,
        is_clairvoyant: bool,
    ) -> None:
        self.source = source
        self._items = items
        self._policy = policy
        self._members = members
        self._epochs = epochs
        self._is_clairvoyant = is_clairvoyant
        # The state before each epoch that was placed, and behind the last one.
        self._states: dict[int, Any] = {0: policy.begin(members.line, held)}
        # The same of what is presumed where samples are dealt.
        self._presumed: dict[int, Any] = {0: None if members.dealing is None else members.dealing.state}
        self._plans: dict[int, EpochPlan] = {}
        self._number = 0
        self._passed: Passed = tuple

    def begin(self, number: int) -> bool:
        """Begin the next epoch, right before its iterator is made; returns whether its plan, if there is one, holds.

        `number` is what it is augmented for.
        """
        holds = self.source.begin_epoch()
        if self._items.are_drawn and number != self._number + 1:
            holds = self.source.epoch == 0 and holds
        self._number, self._passed = number, tuple
        if not holds:
            self._forget(self.source.epoch)
        return holds

    def passes(self, passed: Passed) -> None:
        """Learn what says which samples of the epoch begun last lie before where its iterator goes on."""
        self._passed = passed

    def drawn(self, batches: Sequence[Sequence[int]]) -> None:
        """Learn what the sampler drew for the whole epoch begun last, which was not foreseen or foreseen wrongly."""
        self.source.observe(batches)
        self._forget(self.source.epoch + 1)

    def dealt(self, plan: EpochPlan, drawn: Iterator[Sequence[int]]) -> Iterator[Sequence[int]]:
        """Return this group's batches of an epoch that begins now, given what is drawn; see `Dealing.draws`."""
        dealing = self._members.dealing
        return drawn if dealing is None else dealing.draws(plan.dealt, drawn)

    @property
    def is_foreseen(self) -> bool:
        """Whether the order of the epoch begun last is known before it is drawn."""
        return self.source.horizon.epochs != 0

    def plan(self, epoch: int) -> EpochPlan | None:
        """Return the plan of an epoch, the one begun last or a later one; None where its order is not known yet."""
        if self._epochs is not None and epoch >= self._epochs and epoch > self.source.epoch:
            return None
        for coming in range(min(self._states.keys() - self._plans.keys(), default=epoch + 1), epoch + 1):
            if coming in self._plans:
                continue
            if coming < self.source.epoch:  # nothing was drawn of it
                self._states[coming + 1] = self._states[coming]
                self._presumed[coming + 1] = self._presumed[coming]
                continue
            found = self._orders(coming)
            if found is None:
                return None
            state = self._states[coming]
            placement, self._states[coming + 1] = self._policy.place(state, found.units[0], found.units[1:])
            self._presumed[coming + 1] = None if found.dealt is None else found.dealt.after
            self._plans[coming] = EpochPlan(placement.of(self._members.group), found.own, found.dealt)
        self._let_go(self.source.epoch)
        return self._plans.get(epoch)

    def _orders(self, epoch: int) -> _Orders | None:
        """Return what is known of an epoch; None where its order is not."""
        first = max(self.source.epoch, 0)
        if not self._is_clairvoyant and epoch > first:
            return None
        beyond = (_AHEAD_DRAWN if self._items.are_drawn else _AHEAD) if self._is_clairvoyant else 0
        if self._epochs is not None:
            beyond = max(0, min(beyond, self._epochs - 1 - epoch))
        count = epoch - first + 1 + beyond
        if self._members.dealing is not None:
            return self._dealt(self._members.dealing, epoch, self.source.ahead(count)[epoch - first :])
        own = self.source.own_ahead(count)[epoch - first :]
        if not own:
            return None
        mine = self._drawn(epoch, own[0])
        if self._members.line.groups == 1:
            return _Orders(mine, tuple(self._units_of(epoch + place, order[None]) for place, order in enumerate(own)))
        # What labels other groups' samples have is not looked at here: each looks at its own, and tells the rest.
        if self.source.horizon.is_of_line and not self._items.are_searched:
            ahead = self.source.ahead(count)[epoch - first :]
            return _Orders(mine, tuple(self._units_of(one.epoch, one.samples) for one in ahead)) if ahead else None
        # How far ahead an order is known each rank knows for itself; of the epoch at hand all ranks come to know it.
        if epoch > first:
            return None
        return _Orders(mine, (assemble(epoch, self._members.gather(self._items.rows(mine))),))

    def _dealt(self, dealing: Dealing, epoch: int, orders: tuple[EpochOrder, ...]) -> _Orders | None:
        """Deal an epoch whose order, and those behind it, samplers give; samples are units where they are dealt.

        To whom those behind it go depends on what is kept by then: they stand as samplers deal them.
        """
        if not orders:
            return None
        dealt = dealing.deal(self._presumed[epoch], orders)
        mine = self._drawn(epoch, dealt.order.samples[self._members.group])
        return _Orders(mine, (dealt.order, *orders[1:]), dealt)

    def _units_of(self, epoch: int, samples: Ints) -> EpochOrder:
        """Return the units of groups' samples of an epoch, ``(groups, steps, batch)``."""
        return assemble(epoch, [self._items.rows(self._drawn(epoch, group)) for group in samples])

    def _drawn(self, epoch: int, samples: Ints, before: Sequence[int] = ()) -> EpochItems:
        """Return what is drawn of a group's samples of an epoch, ``(steps, batch)``, with `before` drawn before."""
        if not self._items.are_drawn:
            return EpochItems(samples, 0, np.zeros_like(samples))
        first = max(self.source.epoch, 0)
        passed = [*(self._passed() or () if epoch == first else ()), *before]
        earlier = [index % self._items.samples for index in map(operator.index, passed)]
        return EpochItems(samples, self._number + epoch - first, repeats_of(samples, earlier))

    def alone(
        self, step: int, batches: Sequence[Sequence[int]], *, before: Sequence[int], drops: RankPlan | None
    ) -> EpochPlan:
        """Return a plan for the rest of an epoch that was drawn otherwise: own tiers, else the storage.

        Parameters
        ----------
        step
            Number of its first step.
        batches
            What the sampler drew.
        before
            What it drew of the epoch before them.
        drops
            The plan that it takes the place of: what was to be dropped still is, for others count on the room.
        """
        longest = max(map(len, batches), default=0)
        drawn = np.full((len(batches), longest), -1, np.int64)
        for row, batch in enumerate(batches):
            drawn[row, : len(batch)] = batch
        items = self._drawn(max(self.source.epoch, 0), drawn, before)
        samples = self._items.rows(items)
        tier = np.full(samples.shape, STORAGE, np.int8)
        for at in np.argwhere(samples >= 0).tolist():
            sample = int(samples[tuple(at)])
            tier[tuple(at)] = next((one for one in (MEMORY, DISK) if self._members.holds(one, sample)), STORAGE)
        owner = np.where(tier == STORAGE, -1, self._members.group).astype(np.int32)
        late = slice(0, 0) if drops is None else slice(int(np.searchsorted(drops.drop_steps, step)), None)
        nothing = np.zeros(0, np.int64)
        units = RankPlan(
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
        return EpochPlan(units, items)

    def _forget(self, epoch: int) -> None:
        """Forget the plans of an epoch and of those behind it."""
        for later in [other for other in self._plans if other >= epoch]:
            del self._plans[later]
        for later in [other for other in self._states if other > epoch]:
            del self._states[later], self._presumed[later]

    def _let_go(self, epoch: int) -> None:
        """Forget what lies before an epoch."""
        for earlier in [other for other in self._plans if other < epoch]:
            del self._plans[earlier]
        for earlier in [other for other in self._states if other < epoch]:
            del self._states[earlier], self._presumed[earlier]


def starting_at(plan: EpochPlan, step: int) -> EpochPlan:
    """Return the same plan begun no earlier than at a step."""
    late = step - plan.first_step
    if late <= 0:
        return plan
    units = plan.units
    later = replace(units, first_step=step, ready=units.ready + late, drop_steps=units.drop_steps + late)
    return replace(plan, units=later)


def with_late_drops(plan: EpochPlan, earlier: EpochPlan, step: int) -> EpochPlan:
    """Return a plan that also drops what an earlier one would have dropped from a step on, and no longer will."""
    units, before = plan.units, earlier.units
    late = before.drop_samples[np.searchsorted(before.drop_steps, step) :]
    more = replace(
        units,
        drop_steps=np.concatenate([np.full(len(late), plan.first_step, np.int64), units.drop_steps]),
        drop_samples=np.concatenate([late, units.drop_samples]),
    )
    return replace(plan, units=more)
