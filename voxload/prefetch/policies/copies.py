"""Copies: what all tiers of a line keep, as tables that kernels work on.

Tables of int64: `rows` has a row for each copy of a block, `blocks` one for each sample, `rooms` one for each tier of
each group (number 2 * group + tier), `uses` one for each known use, `drops` one for each drop that is planned: (group,
step, sample). `marks` are single numbers. The six together are `work`; the parts below keep them consistent:

- The copies of a sample are a list from HEAD along NEXT. One of them is the primary; the others are replicas.
- A copy that was used waits, in one of three lists, until the step FREE at which it may be dropped; then it goes into
  the heap of its room. So whatever is in a heap may be dropped now.
- A copy's rank says what dropping it costs: nothing for a replica (2), a read from another group for a primary that
  has replicas (1), a read from the storage for the only one (0). Its key is that rank, then its next use.
"""

from __future__ import annotations

from typing import Any

from voxload.prefetch.policies.heap import (
    COLUMNS,
    FREE,
    GROUP,
    IN_HEAP,
    KEY,
    NEXT,
    NOWHERE,
    PLACE,
    PRIMARY,
    QUEUE,
    RANK,
    READY,
    SAMPLE,
    TIER,
    WAITING,
    insert,
    remove,
)
from voxload.prefetch.policies.uses import NEVER
from voxload.readers.compiling import part

__all__ = ["COLUMNS", "FREE", "GROUP", "KEY", "NEXT", "PRIMARY", "READY", "SAMPLE", "TIER"]

HEAD, COUNT, USE, END, SIZE, SEEN = range(6)
"""Columns of `blocks`: first copy, how many, the next known use and the end of the known ones in `uses`, bytes, and
the last step at which it was looked at."""
ROOM, LEFT, SPARE, TOP = range(4)
"""Columns of `rooms`: bytes in all, bytes left, bytes of copies that cost no read of the storage, top of the heap."""
ROWS, DROPS, QUEUES = 0, 1, 2
"""Places in `marks`: rows and drops so far, and the heads of the three lists of copies that wait."""
STEP, USER = range(2)
"""Columns of `uses`: when a sample is used, and by which group; sorted by sample, then time."""

CLASS = 1 << 42
"""What one rank adds to a key."""
_SEARCHED = 32
"""Uses ahead that are searched for a group's own next one: replicas matter less than the time to find it."""


@part
def next_use(work: Any, sample: int, after: int) -> Any:
    """Return the step of a sample's next known use behind a step."""
    _, blocks, _, _, uses, _ = work
    for use in range(blocks[sample, USE], blocks[sample, END]):
        if uses[use, STEP] > after:
            return uses[use, STEP]
    return NEVER


@part
def own_use(work: Any, sample: int, group: int, after: int) -> Any:
    """Return the step of a group's own next known use of a sample behind a step."""
    _, blocks, _, _, uses, _ = work
    begin = blocks[sample, USE]
    for use in range(begin, min(blocks[sample, END], begin + _SEARCHED)):
        if uses[use, STEP] > after and uses[use, USER] == group:
            return uses[use, STEP]
    return NEVER


@part
def _set_key(work: Any, row: int) -> None:
    rows, _, _, _, _, _ = work
    sample = rows[row, SAMPLE]
    use = own_use(work, sample, rows[row, GROUP], -1) if rows[row, RANK] == 2 else next_use(work, sample, -1)
    rows[row, KEY] = rows[row, RANK] * CLASS + use


@part
def push(work: Any, row: int) -> None:
    """Put a copy into its room's heap by the key it has."""
    rows, _, rooms, _, _, _ = work
    room = 2 * rows[row, GROUP] + rows[row, TIER]
    rooms[room, TOP] = insert(rows, rooms[room, TOP], row)


@part
def pull(work: Any, row: int) -> None:
    """Take a copy out of its room's heap."""
    rows, _, rooms, _, _, _ = work
    room = 2 * rows[row, GROUP] + rows[row, TIER]
    rooms[room, TOP] = remove(rows, rooms[room, TOP], row)


@part
def rank(work: Any, sample: int) -> None:
    """Set the ranks and keys of all copies of a sample, after one came, went or was used."""
    rows, blocks, rooms, _, _, _ = work
    row = blocks[sample, HEAD]
    while row >= 0:
        found = 0 if blocks[sample, COUNT] == 1 else (1 if rows[row, PRIMARY] else 2)
        room = 2 * rows[row, GROUP] + rows[row, TIER]
        rooms[room, SPARE] += (min(found, 1) - min(rows[row, RANK], 1)) * blocks[sample, SIZE]
        rows[row, RANK] = found
        if rows[row, PLACE] == IN_HEAP:
            pull(work, row)
            _set_key(work, row)
            push(work, row)
        row = rows[row, NEXT]


@part
def hold(work: Any, row: int, until: int) -> None:
    """Let a copy wait until it may be dropped: at the step `until`, two ahead at most."""
    rows, _, _, marks, _, _ = work
    rows[row, FREE] = max(rows[row, FREE], until)
    if rows[row, PLACE] == WAITING:
        return
    if rows[row, PLACE] == IN_HEAP:
        pull(work, row)
    queue = QUEUES + rows[row, FREE] % 3
    rows[row, QUEUE] = marks[queue]
    rows[row, PLACE] = WAITING
    marks[queue] = row


@part
def release(work: Any, step: int) -> None:
    """Put the copies that may be dropped from this step on into their heaps."""
    rows, _, _, marks, _, _ = work
    queue = QUEUES + step % 3
    row = marks[queue]
    marks[queue] = -1
    while row >= 0:
        rest = rows[row, QUEUE]
        rows[row, PLACE] = NOWHERE
        if rows[row, FREE] > step:
            hold(work, row, rows[row, FREE])
        else:
            _set_key(work, row)
            push(work, row)
        row = rest


@part
def link(work: Any, row: int) -> None:
    """Enter a copy whose group, sample and tier are set into its sample's list, and its bytes into its room."""
    rows, blocks, rooms, _, _, _ = work
    sample = rows[row, SAMPLE]
    rows[row, NEXT] = blocks[sample, HEAD]
    blocks[sample, HEAD] = row
    blocks[sample, COUNT] += 1
    rooms[2 * rows[row, GROUP] + rows[row, TIER], LEFT] -= blocks[sample, SIZE]


@part
def enter(work: Any, step: int) -> None:
    """Enter the copies that are there before a step; the first of each sample is its primary."""
    rows, blocks, _, marks, _, _ = work
    for row in range(marks[ROWS]):
        rows[row, PRIMARY] = 1 if blocks[rows[row, SAMPLE], COUNT] == 0 else 0
        rows[row, RANK], rows[row, PLACE] = 0, NOWHERE
        link(work, row)
        hold(work, row, step)
    for row in range(marks[ROWS]):
        rank(work, rows[row, SAMPLE])


@part
def add(work: Any, group: int, sample: int, tier: int, step: int) -> Any:
    """Make a copy, which is stored at a step, and return its row; it is the primary where it is the first."""
    rows, blocks, _, marks, _, _ = work
    row = marks[ROWS]
    marks[ROWS] += 1
    rows[row, GROUP], rows[row, SAMPLE], rows[row, TIER], rows[row, READY] = group, sample, tier, step
    rows[row, PRIMARY] = 1 if blocks[sample, COUNT] == 0 else 0
    rows[row, RANK], rows[row, PLACE], rows[row, FREE] = 0, NOWHERE, step
    link(work, row)
    hold(work, row, step + 1)
    rank(work, sample)
    return row


@part
def find(work: Any, group: int, sample: int) -> Any:
    """Return a group's copy of a sample, or -1."""
    rows, blocks, _, _, _, _ = work
    row = blocks[sample, HEAD]
    while row >= 0 and rows[row, GROUP] != group:
        row = rows[row, NEXT]
    return row


@part
def find_other(work: Any, sample: int, step: int) -> Any:
    """Return the copy that serves other groups, or -1: the primary, or an older one while that has just been stored."""
    rows, blocks, _, _, _, _ = work
    row, best = blocks[sample, HEAD], -1
    while row >= 0:
        is_old = rows[row, READY] < step
        if best < 0 or (is_old and (rows[row, PRIMARY] or rows[best, READY] == step)):
            best = row
        row = rows[row, NEXT]
    return best


@part
def _forget(work: Any, row: int, step: int) -> None:
    """Drop a copy that is in no heap; where it was the primary, another one becomes it."""
    rows, blocks, rooms, marks, _, drops = work
    sample, group = rows[row, SAMPLE], rows[row, GROUP]
    room = 2 * group + rows[row, TIER]
    drop = marks[DROPS]
    drops[drop, 0], drops[drop, 1], drops[drop, 2] = group, step, sample
    marks[DROPS] += 1
    rooms[room, LEFT] += blocks[sample, SIZE]
    if rows[row, RANK]:
        rooms[room, SPARE] -= blocks[sample, SIZE]
    if blocks[sample, HEAD] == row:
        blocks[sample, HEAD] = rows[row, NEXT]
    else:
        before = blocks[sample, HEAD]
        while rows[before, NEXT] != row:
            before = rows[before, NEXT]
        rows[before, NEXT] = rows[row, NEXT]
    blocks[sample, COUNT] -= 1
    rows[row, GROUP] = -1
    if rows[row, PRIMARY] and blocks[sample, COUNT]:
        rows[blocks[sample, HEAD], PRIMARY] = 1
    rank(work, sample)


@part
def make_room(work: Any, room: int, size: int, floor: int, step: int) -> Any:
    """Make room in a tier by dropping copies with keys above `floor`, the greatest first; or change nothing."""
    rows, blocks, rooms, _, _, _ = work
    if size > rooms[room, ROOM]:
        return False
    left, chosen = rooms[room, LEFT], -1
    while left < size:
        row = rooms[room, TOP]
        if row < 0 or rows[row, KEY] <= floor:
            break
        pull(work, row)
        rows[row, QUEUE] = chosen
        chosen = row
        left += blocks[rows[row, SAMPLE], SIZE]
    is_enough = left >= size
    while chosen >= 0:
        row, chosen = chosen, rows[chosen, QUEUE]
        bytes_ = blocks[rows[row, SAMPLE], SIZE]
        if is_enough and left - bytes_ < size:
            _forget(work, row, step)
        else:  # of blocks of unequal sizes one that was chosen later may do alone
            left -= bytes_
            push(work, row)
    return is_enough
