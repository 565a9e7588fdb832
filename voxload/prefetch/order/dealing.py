"""Dealing: which group gets which samples of a step, so that as many as can be lie in its own tiers; pure.

SOLAR deals a global batch's samples for locality (Sun et al., VLDB 2022, arXiv 2211.00224): what all groups train on in
a step stays the same set, and with it the gradient that they average.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voxload.prefetch.line import EpochOrder, Held, Ints

LOCALITIES = ("batch", "epochs")
"""What may be asked for: ``batch`` deals the samples of each step, ``epochs`` reorders the shuffles of a run."""

_Holders = Sequence[Sequence[int]]
"""For each item of a step, the groups that keep it."""


def deal(order: EpochOrder, held: Held) -> EpochOrder:
    """Return an epoch's order in which as many samples of each step as can be go to a group that keeps them.

    What is held is taken to be there for the whole epoch. Samples that a group gets anyway keep their places; equal
    arguments give equal orders.

    Parameters
    ----------
    order
        What samplers deal to the groups.
    held
        What tiers contain as the epoch begins.

    Returns
    -------
    EpochOrder
        Of the same shape. Each step has the same samples, as often as before, and each group as many, at the same
        places: -1 stands where it stood.
    """
    if not held.copies:
        return order
    items = _Items.of(order)
    now = items.filled(items.matched(_Copies.of(held, items)))
    # Who stays keeps its place, and who comes takes that of one who went.
    went = np.flatnonzero(now != items.group)
    came = went[np.argsort(items.step[went] * items.groups + now[went], kind="stable")]
    samples = np.array(order.samples, np.int64)
    samples[items.group[went], items.step[went], items.place[went]] = items.sample[came]
    return EpochOrder(order.epoch, samples)


@dataclass(frozen=True, slots=True)
class _Copies:
    """Who keeps the samples of an epoch's items."""

    first: Ints
    """Where each item's holders begin among all."""
    count: Ints
    """How many it has."""
    holders: Ints
    """Groups."""
    is_own: npt.NDArray[np.bool_]
    """Whether the group that samplers give an item keeps it."""

    @classmethod
    def of(cls, held: Held, items: _Items) -> _Copies:
        """Look the items up."""
        by_sample = np.argsort(held.sample, kind="stable")
        kept = held.sample[by_sample]
        first = np.searchsorted(kept, items.sample)
        count = np.searchsorted(kept, items.sample, side="right") - first
        pairs = np.sort(held.sample * items.groups + held.group)
        wanted = items.sample * items.groups + items.group
        is_own = pairs[np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)] == wanted
        return cls(first, count, held.group[by_sample].astype(np.int64), is_own)

    def of_items(self, chosen: slice) -> list[list[int]]:
        """Return the holders of some items."""
        bounds = zip(self.first[chosen].tolist(), self.count[chosen].tolist(), strict=True)
        return [self.holders[first : first + count].tolist() for first, count in bounds]


@dataclass(frozen=True, slots=True)
class _Items:
    """The samples of an epoch, by step, then group, then place."""

    groups: int
    steps: int
    step: Ints
    group: Ints
    """To which samplers give it."""
    place: Ints
    sample: Ints

    @classmethod
    def of(cls, order: EpochOrder) -> _Items:
        """Return those of an order."""
        groups, steps, _ = order.samples.shape
        step, group, place = np.nonzero(order.samples.transpose(1, 0, 2) >= 0)
        return cls(groups, steps, step, group, place, order.samples[group, step, place])

    def matched(self, copies: _Copies) -> Ints:
        """Return for each item a group that keeps it and gets it, in a largest matching; -1 where it has none."""
        found = copies.holders[np.minimum(copies.first, len(copies.holders) - 1)]
        wanted = np.where(copies.is_own, self.group, np.where(copies.count > 0, found, -1))
        left = self._left(np.full(len(self.step), -1))
        chosen = np.flatnonzero(wanted >= 0)
        now = np.full(len(self.step), -1, np.int64)
        taken = chosen[self._first_come(wanted[chosen], chosen, left, last=~copies.is_own[chosen])]
        now[taken] = wanted[taken]
        # Where each item has one holder at most, nothing better can be had.
        lacking, movable = (np.unique(self.step[which]) for which in ((now < 0) & (copies.count > 0), copies.count > 1))
        left = self._left(now)
        for step in np.intersect1d(lacking, movable).tolist():
            items = slice(*np.searchsorted(self.step, [step, step + 1]).tolist())
            row = left[step * self.groups : (step + 1) * self.groups].tolist()
            now[items] = _Matching(copies.of_items(items), now[items].tolist(), row).largest()
        return now

    def filled(self, now: Ints) -> Ints:
        """Return the groups of all items: one without stays where it was if there is a place left, else goes on."""
        now = now.copy()
        lacking = np.flatnonzero(now < 0)
        stays = lacking[self._first_come(self.group[lacking], lacking, self._left(now))]
        now[stays] = self.group[stays]
        left = self._left(now)
        now[now < 0] = np.repeat(np.arange(len(left)), left) % self.groups
        return now

    def _left(self, now: Ints) -> Ints:
        """Return how many places each group has left in each step, ``(steps * groups,)``."""
        cells, given = self.steps * self.groups, now >= 0
        all_places = np.bincount(self.step * self.groups + self.group, minlength=cells)
        return all_places - np.bincount(self.step[given] * self.groups + now[given], minlength=cells)

    def _first_come(
        self, wanted: Ints, items: Ints, left: Ints, *, last: npt.NDArray[np.bool_] | None = None
    ) -> npt.NDArray[np.bool_]:
        """Tell which items get a place in the groups that they want; those marked as `last` come behind the others."""
        cells = self.step[items] * self.groups + wanted
        order = np.argsort(cells, kind="stable") if last is None else np.lexsort((last, cells))
        ordered = cells[order]
        turn = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
        gets = np.zeros(len(items), np.bool_)
        gets[order] = turn < left[ordered]
        return gets


class _Matching:
    """One step's items and the groups that get them, which becomes a largest matching of items to holders.

    Parameters
    ----------
    holders
        Of each item.
    groups
        The group that has each item; -1 where none does. Changed.
    left
        Places of each group that are left. Changed.
    """

    def __init__(self, holders: _Holders, groups: list[int], left: list[int]) -> None:
        self._holders, self._groups, self._left = holders, groups, left
        self._items: list[list[int]] = [[] for _ in left]
        for item, group in enumerate(groups):
            if group >= 0:
                self._items[group].append(item)

    def largest(self) -> list[int]:
        """Return the group of each item."""
        for item, group in enumerate(self._groups):
            if group < 0 and self._holders[item]:
                self._match(item)
        return self._groups

    def _match(self, item: int) -> None:
        """Give one more item to a group that keeps it, where others may have to move to another that keeps them."""
        came = dict.fromkeys(self._holders[item], item)  # the item that would move to each group
        ways = deque(came)
        while ways:
            group = ways.popleft()
            if self._left[group]:
                self._left[group] -= 1
                self._move(came, group)
                return
            for other in self._items[group]:
                for holder in self._holders[other]:
                    if holder not in came:
                        came[holder] = other
                        ways.append(holder)

    def _move(self, came: Mapping[int, int], group: int) -> None:
        """Move items along the way that ends at a group with a place left."""
        while group >= 0:
            item = came[group]
            before = self._groups[item]
            if before >= 0:
                self._items[before].remove(item)
            self._items[group].append(item)
            self._groups[item] = group
            group = before
