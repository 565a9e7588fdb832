"""Clairvoyant: keep what is used again soonest, once on the line before any is kept twice.

Reading from a peer is far cheaper than reading the storage, so all tiers of a line are one cache, which evicts what is
used again last (Belady 1966) and does not keep what is used again later than all that it has. Two things make it differ
from a shared cache: a group stores only what passes through its hands, and what others use is dropped two steps later.

What each step does, in this order:

1. Blocks that are nowhere are read, those that are used again soonest first, and stored by who reads them. Of several
   groups that want one, the one that has room at no cost reads it, then the one that uses it most.
2. Room is made by dropping replicas, then blocks that another group has too, then those that are used last, and never
   one that is used earlier than the new one. A block without known next use gets room that costs nothing.
3. All others are fetched from where they are. A group that will use one again keeps a replica in memory that is left.
4. A group that soon reads a block for which it has no room is relieved: who fetches a block of its, and has one that
   is used later than all that it would lose, takes that block over, and the group drops it two steps later. So room
   on the line moves to where it is wanted.

An order that visits every sample once an epoch gives each block to a single group in the first one, and nobody else has
it in hand: the storage is read exactly once if, and only if, each group's room holds what it is the first to read. For
equal rooms, equal sizes and torch's samplers that is the data set divided by the groups, rounded up, and, where blocks
do not fill the memory to the last byte, one block for the memory. Blocks of unequal sizes need as much more as the
largest share exceeds the mean one; rooms that are unequal lose in the first epoch what does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import int64

from voxload.prefetch.line import DISK, MEMORY, EpochOrder, Held, Line
from voxload.prefetch.placement import Placement
from voxload.prefetch.policies.copies import (
    CLASS,
    END,
    HEAD,
    LEFT,
    SEEN,
    SIZE,
    SPARE,
    STEP,
    TOP,
    USE,
    USER,
    add,
    enter,
    find,
    find_other,
    hold,
    make_room,
    next_use,
    own_use,
    rank,
    release,
)
from voxload.prefetch.policies.heap import GROUP, KEY, PRIMARY, READY, SAMPLE, TIER
from voxload.prefetch.policies.protocol import State
from voxload.prefetch.policies.tables import ANSWERS, WORK, Tables
from voxload.prefetch.policies.uses import NEVER, NUMBERS, ORDER, TABLE
from voxload.readers.compiling import compiled, part

_WINDOW = 8
"""Steps ahead in which a group's need of room is seen: a relief has to come two steps before."""


@part
def _floor(ends: Any, key: int, first: int) -> Any:
    """Return the key above which a block may go for one that is used next at `key`.

    Between the two uses another block must have its turn, or the swap is of use to none and costs a store.
    """
    return max(key, ends[key - first] - 1) if key < NEVER else key


@part
def _settle(work: Any, group: int, sample: int, floor: int, step: int) -> Any:
    """Make room in a group for a block for which copies with keys above `floor` may go; return the tier or -1."""
    rows, blocks, rooms, _, _, _ = work
    size, room = blocks[sample, SIZE], 2 * group
    for tier in (MEMORY, DISK):
        if make_room(work, room + tier, size, 2 * CLASS - 1, step):
            return tier
    best = MEMORY
    tops = (rooms[room, TOP], rooms[room + 1, TOP])
    keys = (rows[tops[0], KEY] if tops[0] >= 0 else -1, rows[tops[1], KEY] if tops[1] >= 0 else -1)
    if keys[1] > keys[0]:
        best = DISK
    for tier in (best, 1 - best):
        if make_room(work, room + tier, size, floor, step):
            return tier
    return -1


@part
def _reader(work: Any, sample: int, step: int) -> Any:
    """Return which of the groups that use a sample at a step reads and keeps it."""
    _, blocks, rooms, _, uses, _ = work
    size, use = blocks[sample, SIZE], blocks[sample, USE]
    if use + 1 == blocks[sample, END] or uses[use + 1, STEP] != step:
        return uses[use, USER]
    best, best_room, best_uses = -1, -1, -1
    while use < blocks[sample, END] and uses[use, STEP] == step:
        group = uses[use, USER]
        use += 1
        has_room = 0
        for room in (2 * group, 2 * group + 1):
            has_room |= rooms[room, LEFT] + rooms[room, SPARE] >= size
        count = 0
        for other in range(blocks[sample, USE], blocks[sample, END]):
            count += uses[other, USER] == group
        if (has_room, count) > (best_room, best_uses):
            best, best_room, best_uses = group, has_room, count
    return best


@part
def _sort(pairs: Any, count: int) -> None:
    """Sort the first (key, sample) pairs in place (Shell 1959): numpy's own sort takes seconds to compile."""
    gap = count
    while gap > 1:
        gap = max(1, 5 * gap // 11)
        for begin in range(gap, count):
            place, key, sample = begin, pairs[begin, 0], pairs[begin, 1]
            while place >= gap and (pairs[place - gap, 0], pairs[place - gap, 1]) > (key, sample):
                pairs[place, 0], pairs[place, 1] = pairs[place - gap, 0], pairs[place - gap, 1]
                place -= gap
            pairs[place, 0], pairs[place, 1] = key, sample


@part
def _read(work: Any, ends: Any, order: Any, keep: Any, missed: Any, first: int, at: int) -> None:
    """Store what is read at a step, what is used again soonest first."""
    _, blocks, _, _, uses, _ = work
    groups, _, batch = order.shape
    step, count = first + at, 0
    for group in range(groups):
        for place in range(batch):
            sample = order[group, at, place]
            if sample < 0 or blocks[sample, HEAD] >= 0 or blocks[sample, SEEN] == step:
                continue
            blocks[sample, SEEN] = step
            use = blocks[sample, USE] + 1
            is_shared = use < blocks[sample, END] and uses[use, STEP] == step
            missed[count, 0] = step if is_shared else next_use(work, sample, step)
            missed[count, 1] = sample
            count += 1
    _sort(missed, count)
    for number in range(count):
        key, sample = missed[number, 0], missed[number, 1]
        reader = _reader(work, sample, step)
        tier, use = -1, blocks[sample, USE] - 1
        while tier < 0:
            tier = _settle(work, reader, sample, _floor(ends, key, first), step)
            use += 1
            if tier >= 0 or use >= blocks[sample, END] or uses[use, STEP] != step:
                break
            reader = uses[use, USER]
        if tier < 0:
            continue
        add(work, reader, sample, tier, step)
        place = 0
        while order[reader, at, place] != sample:
            place += 1
        keep[reader, at, place] = tier


@part
def _loss(work: Any, ends: Any, order: Any, group: int, first: int, at: int) -> Any:
    """Return the next use of what a group loses soon for lack of room; -1 where it loses nothing."""
    rows, blocks, rooms, _, uses, _ = work
    _, steps, batch = order.shape
    left, need = 0, 0
    for room in (2 * group, 2 * group + 1):
        left += rooms[room, LEFT] + rooms[room, SPARE]
    for ahead in range(at + 1, min(steps, at + 1 + _WINDOW)):
        for place in range(batch):
            sample = order[group, ahead, place]
            if sample < 0 or blocks[sample, HEAD] >= 0:
                continue
            use = blocks[sample, USE]
            if uses[use, STEP] != first + ahead or uses[use, USER] != group:
                continue
            key = next_use(work, sample, first + ahead)
            if key == NEVER:
                continue
            need += blocks[sample, SIZE]
            if need > left:
                key = _floor(ends, key, first)
                for room in (2 * group, 2 * group + 1):
                    if rooms[room, TOP] >= 0:
                        key = max(key, rows[rooms[room, TOP], KEY])
                return key
    return -1


@part
def _adopt(work: Any, ends: Any, order: Any, group: int, owner: int, first: int, at: int) -> Any:
    """Let a group that fetches a block from another one keep it too, or take it over; return the tier, or -1."""
    rows, blocks, _, _, _, _ = work
    sample, step = rows[owner, SAMPLE], first + at
    size, tier = blocks[sample, SIZE], -1
    own = own_use(work, sample, group, step)
    room = 2 * group + MEMORY
    if own < NEVER and make_room(work, room, size, 2 * CLASS + own, step):
        add(work, group, sample, MEMORY, step)
        return MEMORY
    key = next_use(work, sample, step)
    if key == NEVER:
        return -1
    loss = _loss(work, ends, order, rows[owner, GROUP], first, at)
    if loss < 0:
        return -1
    tier = _settle(work, group, sample, max(_floor(ends, key, first), loss), step)
    if tier >= 0:
        row = add(work, group, sample, tier, step)
        rows[owner, PRIMARY], rows[row, PRIMARY] = 0, 1
        rank(work, sample)
    return tier


@part
def _advance(work: Any, order: Any, first: int, at: int) -> None:
    """Pass by the uses of a step."""
    _, blocks, _, _, uses, _ = work
    groups, _, batch = order.shape
    for group in range(groups):
        for place in range(batch):
            sample = order[group, at, place]
            if sample < 0:
                continue
            use = blocks[sample, USE]
            while use < blocks[sample, END] and uses[use, STEP] <= first + at:
                use += 1
            if use != blocks[sample, USE]:
                blocks[sample, USE] = use
                rank(work, sample)


def _place(work: Any, order: Any, ends: Any, answers: Any, missed: Any, first: int) -> None:
    """Plan one epoch, step by step."""
    rows, blocks, _, _, _, _ = work
    owner, tier, ready, keep = answers
    groups, steps, batch = order.shape
    enter(work, first)
    for at in range(steps):
        step = first + at
        release(work, step)
        _read(work, ends, order, keep, missed, first, at)
        for group in range(groups):
            for place in range(batch):
                sample = order[group, at, place]
                if sample < 0 or blocks[sample, HEAD] < 0 or keep[group, at, place] >= 0:
                    continue
                row = find(work, group, sample)
                if row >= 0:
                    hold(work, row, step + 1)
                else:
                    row = find_other(work, sample, step)
                    hold(work, row, step + 2)
                    keep[group, at, place] = _adopt(work, ends, order, group, row, first, at)
                owner[group, at, place] = rows[row, GROUP]
                tier[group, at, place] = rows[row, TIER]
                ready[group, at, place] = rows[row, READY]
        _advance(work, order, first, at)


@cache
def _kernel() -> Callable[..., None]:
    """Return `_place`, compiled when it is first asked for: that takes many seconds, and other policies need it not."""
    kernel: Callable[..., None] = compiled(WORK, ORDER, NUMBERS, ANSWERS, TABLE, int64)(_place)
    return kernel


def prepare() -> None:
    """Compile what plans are made with, or load it: seconds that can pass while nobody waits."""
    _kernel()


@dataclass(frozen=True, slots=True)
class Clairvoyant:
    """Belady's policy over all tiers of a line, as far as blocks can move; see above."""

    name: str = "clairvoyant"

    def begin(self, line: Line, held: Held) -> State:
        """Return the state before the first epoch."""
        held.check(line)
        return State(line=line, step=0, held=held)

    def place(self, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> tuple[Placement, State]:
        """Plan one epoch."""
        tables = Tables.of(state, epoch, ahead)
        groups, _, batch = tables.order.shape
        missed = np.zeros((groups * batch, 2), np.int64)
        _kernel()(tables.work, tables.order, tables.ends, tables.answers, missed, state.step)
        return tables.placement(), State(line=state.line, step=state.step + epoch.steps, held=tables.held())
