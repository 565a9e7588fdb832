"""Copies: what all tiers of a line keep, as tables that the core works on.

Tables of int64: `rows` has a row for each copy of a block, `blocks` one for each sample, `rooms` one for each tier of
each group (number 2 * group + tier), `uses` one for each known use, `drops` one for each drop that is planned: (group,
step, sample). `marks` are single numbers. The six together are `work`; ``core/plan/copies.c`` keeps them consistent:

- The copies of a sample are a list from HEAD along NEXT. One of them is the primary; the others are replicas.
- A copy that was used waits, in one of three lists, until the step FREE at which it may be dropped; then it goes into
  the heap of its room. So whatever is in a heap may be dropped now.
- A copy's rank says what dropping it costs: nothing for a replica (2), a read from another group for a primary that
  has replicas (1), a read from the storage for the only one (0). Its key is that rank, then its next use.

A room's heap is a pairing heap (Fredman, Sedgewick, Sleator and Tarjan 1986) that lies in its rows
(``core/plan/heap.c``): no capacity has to be guessed, and any row can be taken out. The greatest key is on top, and of
equal keys the row that was made first, so that all ranks see the same heap.

The constants below name columns; the core has a struct for each table, whose members stand in the same order.
"""

from __future__ import annotations

GROUP, SAMPLE, TIER, READY, FREE, PRIMARY, RANK, KEY, NEXT, QUEUE, PLACE, CHILD, SIBLING, BEFORE = range(14)
"""Of `rows`; the last three are the heap's, and PLACE says whether the copy is in one, waits, or neither."""
COLUMNS = 14
HEAD, COUNT, USE, END, SIZE, SEEN = range(6)
"""Of `blocks`: first copy, how many, the next known use and the end of the known ones in `uses`, bytes, and the last
step at which it was looked at."""
ROOM, LEFT, SPARE, TOP = range(4)
"""Of `rooms`: bytes in all, bytes left, bytes of copies that cost no read of the storage, top of the heap."""
ROWS, DROPS, QUEUES = 0, 1, 2
"""Places in `marks`: rows and drops so far, and the heads of the three lists of copies that wait."""
