"""Dealing: the samples of each global batch go to groups that keep them, the same on all ranks of all lines.

Rules of this file:

1. The ranks of a group are on different lines, whose rooms may differ, and must get the same samples. What groups keep
   is therefore presumed: planned for one line that all ranks agreed on, in which a group has the least room of its
   ranks, and holds at the start what all of them do. Where it is not so, a block comes from elsewhere, and no sample
   changes.
2. The presumption goes from epoch to epoch, whether these ran to their end or not: no rank needs to know where others
   were.
3. The samplers are drawn all the same, and have to draw what was foreseen of them. Every rank compares the dealing of
   an epoch with all others': a sample that each of two groups takes to be the other's would be lost without a word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from voxload.errors import UsageError
from voxload.loader.cache import Cache
from voxload.loader.caching.items import SampleItems
from voxload.loader.caching.kept import Kept
from voxload.loader.caching.tiers import SharedTiers
from voxload.loader.collectives import Rendezvous
from voxload.prefetch import policies
from voxload.prefetch.line import DISK, MEMORY, EpochOrder, Held, Ints, Line, Room
from voxload.prefetch.order.dealing import deal
from voxload.prefetch.order.source import OrderSource
from voxload.prefetch.policies.protocol import Policy, State

_LEAVE = "leave out locality"
_NOT_DEALT = ""
"""What a rank says that cannot deal an epoch."""


@dataclass(frozen=True, slots=True)
class Stock:
    """What a rank tells all others before anything is dealt."""

    memory: int
    """Samples that its memory has room for."""
    disk: int
    """Samples that its part of a disk has room for."""
    in_memory: Ints
    """Those that its memory holds."""
    on_disk: Ints
    """Those that its disk holds, and its memory does not."""


@dataclass(frozen=True, slots=True)
class DealtEpoch:
    """How the samples of an epoch, or of the rest of one, are dealt."""

    given: Ints
    """What the samplers draw, ``(groups, steps, batch)``."""
    order: EpochOrder
    """What the groups get."""
    after: State
    """What is presumed to be kept once it is over."""


class Dealing:
    """Deals one loader's epochs; `deal` is pure, and `draws` is for the loop's thread.

    Parameters
    ----------
    policy
        Who keeps what.
    state
        What is presumed at the start; equal on all ranks.
    group
        This rank's.
    samples
        Length of the data set.
    gather
        Returns what every rank of the job gave; called by all of them at once.
    """

    def __init__(
        self, policy: Policy, state: State, *, group: int, samples: int, gather: Callable[[str], Sequence[str]]
    ) -> None:
        self.state = state
        self._policy, self._group, self._samples, self._gather = policy, group, samples, gather

    def deal(self, state: State, orders: Sequence[EpochOrder]) -> DealtEpoch:
        """Deal the first of some epochs, given what is presumed to be kept as it begins; the others follow it."""
        order = deal(orders[0], state.held)
        _, after = self._policy.place(state, order, orders[1:])
        return DealtEpoch(orders[0].samples, order, after)

    def draws(self, dealt: DealtEpoch | None, drawn: Iterator[Sequence[int]]) -> Iterator[Sequence[int]]:
        """Return this group's batches of an epoch that begins now, one for each that its sampler draws.

        Called by all ranks of the job at once. Raises UsageError where they do not deal alike, or one cannot; the
        batches raise it where the sampler does not draw as was foreseen.
        """
        everyone = self._gather(_NOT_DEALT if dealt is None else _digest(dealt))
        lacking = [rank for rank, digest in enumerate(everyone) if digest == _NOT_DEALT]
        if dealt is None or lacking:
            raise UsageError(
                "locality",
                found=f"ranks {lacking} that hold another iterator, or know no order before it is drawn",
                expected="one iterator at a time on all ranks, of an order that is known",
                remedy="go through iterators to their end, or let go of them first",
            )
        differing = [rank for rank, digest in enumerate(everyone) if digest != everyone[0]]
        if differing:
            raise UsageError(
                "locality",
                found=f"ranks {differing} that deal samples otherwise than rank 0",
                expected="the same sampler, epoch and state on all ranks",
                remedy="call set_epoch and load_state_dict alike on all ranks, and leave no rank out of an epoch",
            )
        return _Draws(drawn, dealt.given[self._group], dealt.order.samples[self._group], self._samples)

    def refuse(self) -> NoReturn:
        """Tell the ranks that begin an epoch that this one does not, for it holds an iterator; raises UsageError."""
        self._gather(_NOT_DEALT)
        raise UsageError(
            "iterator of a DataLoader with locality",
            found="another one that is under way",
            expected="one at a time",
            remedy="go through it to its end, or let go of it first",
        )


class _Draws(Iterator[Sequence[int]]):
    """A group's dealt batches, as long as its sampler draws what was foreseen."""

    def __init__(self, drawn: Iterator[Sequence[int]], given: Ints, dealt: Ints, samples: int) -> None:
        self._drawn, self._given, self._dealt, self._samples = drawn, given, dealt, samples
        self._step = 0

    def __next__(self) -> Sequence[int]:
        drawn = next(self._drawn)
        row = self._given[self._step] if self._step < len(self._given) else np.zeros(0, np.int64)
        foreseen = row[row >= 0].tolist()
        found = [int(index) % self._samples if -self._samples <= index < self._samples else -1 for index in drawn]
        if found != foreseen:
            raise UsageError(
                f"sampler with locality, step {self._step}",
                found=f"samples {found[:8]}",
                expected=f"{foreseen[:8]}, as it was foreseen and dealt to all groups",
                remedy=f"do not change the sampler while an epoch runs, or {_LEAVE}",
            )
        dealt = self._dealt[self._step]
        self._step += 1
        chosen: list[int] = dealt[dealt >= 0].tolist()
        return chosen


def dealing_of(
    cache: Cache, kept: Kept, source: OrderSource, tiers: SharedTiers, rendezvous: Rendezvous
) -> Dealing | None:
    """Return what deals the samples of a loader's batches; None where nobody asked for it, or there is one group.

    Called by all ranks together.

    Raises
    ------
    UsageError
        When groups share no blocks, or `check_dealing` refuses what there is now.
    """
    check_dealing(cache, kept, source)
    grid = kept.units.data.grid
    if cache.locality != "batch" or grid.groups == 1:
        return None
    policy = policies.named(cache.policy)
    return Dealing(
        policy,
        policy.begin(*agreed(kept, tiers, rendezvous)),
        group=grid.group,
        samples=kept.units.count,
        gather=lambda digest: rendezvous.gather(digest, str),
    )


def agreed(kept: Kept, tiers: SharedTiers, rendezvous: Rendezvous) -> tuple[Line, Held]:
    """Return the line that all ranks agree on, and what it holds, of what each tells the others; see `presumed`.

    Called by all ranks together; raises UsageError when groups share no blocks.
    """
    grid = kept.units.data.grid
    if rendezvous.ranks != grid.world_size or len(tiers.ranks) != grid.groups:
        raise UsageError(
            "locality",
            found="sample groups that share no blocks",
            expected="ranks that meet over torch.distributed and read the same files",
            remedy=f"call torch.distributed.init_process_group before the first batch, or {_LEAVE}",
        )
    size = int(tiers.line.sizes.max(initial=1))
    room, held = tiers.line.rooms[tiers.group], tiers.held
    mine = [np.sort(held.sample[(held.group == tiers.group) & (held.tier == tier)]) for tier in (MEMORY, DISK)]
    everyone = rendezvous.gather(Stock(room.memory // size, room.disk // size, *mine), Stock)
    members = [everyone[first : first + grid.group_size] for first in range(0, len(everyone), grid.group_size)]
    return presumed(members, kept.units.count)


def presumed(groups: Sequence[Sequence[Stock]], samples: int) -> tuple[Line, Held]:
    """Return the line that all ranks agree on, with blocks of one byte, and what it holds; pure.

    Parameters
    ----------
    groups
        The stock of each group's ranks.
    samples
        Length of the data set.
    """
    rooms = tuple(Room(min(one.memory for one in each), min(one.disk for one in each)) for each in groups)
    memories = [
        _common([one.in_memory for one in each])[: room.memory] for each, room in zip(groups, rooms, strict=True)
    ]
    disks = [_common([one.on_disk for one in each])[: room.disk] for each, room in zip(groups, rooms, strict=True)]
    return Line(np.ones(samples, np.int64), rooms), Held.found(memories, disks)


def _common(held: Sequence[Ints]) -> Ints:
    """Return the samples that all have, ascending."""
    found = np.unique(held[0])
    for other in held[1:]:
        found = np.intersect1d(found, other)
    return found


def check_dealing(cache: Cache, kept: Kept, source: OrderSource) -> None:
    """Refuse what cannot be dealt and shall be, before ranks meet; they have the same data and samplers.

    Raises
    ------
    UsageError
        When the orders of other groups are not known, or samples are made of pieces.
    """
    if cache.locality is None or (cache.locality == "batch" and kept.units.data.grid.groups == 1):
        return
    horizon = source.horizon
    if not horizon.is_of_line:
        raise UsageError(
            "locality",
            found=f"a sampler whose order for other groups is not known ({horizon.reason})",
            expected="one order that is dealt to all sample groups",
            remedy=f"leave out sampler and batch_sampler, or pass voxload's GroupSampler; or {_LEAVE}",
        )
    if not isinstance(kept.items, SampleItems):
        raise UsageError(
            "locality",
            found="samples that are augmented, unequal or overlap, of which pieces are kept",
            expected="samples of one shape that stay what they are",
            remedy=_LEAVE,
        )


def _digest(dealt: DealtEpoch) -> str:
    digest = hashlib.sha256()
    for array in (dealt.given, dealt.order.samples):
        digest.update(f"{array.shape};".encode())
        digest.update(np.ascontiguousarray(array, "<i8").tobytes())
    return digest.hexdigest()
