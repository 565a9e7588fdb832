"""Heap: pairing heaps over rows of one table, the greatest key on top.

Every copy is a row; those that may be dropped are in the heap of their room. A pairing heap (Fredman, Sedgewick,
Sleator and Tarjan 1986) lies in its rows: no capacity has to be guessed, and any row can be taken out. Of equal keys
the row that was made first is above, so that all ranks see the same heap.
"""

from __future__ import annotations

from typing import Any

from voxload.readers.compiling import part

GROUP, SAMPLE, TIER, READY, FREE, PRIMARY, RANK, KEY, NEXT, QUEUE, PLACE, CHILD, SIBLING, BEFORE = range(14)
"""Columns of the table of copies; `copies` says what they mean, the last three are the heap's."""
COLUMNS = 14
NOWHERE, IN_HEAP, WAITING = 0, 1, 2
"""Where a copy is, in column PLACE."""


@part
def _meld(rows: Any, first: int, second: int) -> Any:
    """Join two heaps and return the top."""
    if first < 0:
        return second
    if second < 0:
        return first
    if (rows[second, KEY], first) > (rows[first, KEY], second):
        first, second = second, first
    child = rows[first, CHILD]
    rows[second, SIBLING], rows[second, BEFORE] = child, first
    if child >= 0:
        rows[child, BEFORE] = second
    rows[first, CHILD], rows[first, SIBLING], rows[first, BEFORE] = second, -1, -1
    return first


@part
def _meld_children(rows: Any, child: int) -> Any:
    """Join the children of a row that goes: in pairs from the left, then from the right."""
    pairs = -1
    while child >= 0:
        other = rows[child, SIBLING]
        rest = rows[other, SIBLING] if other >= 0 else -1
        rows[child, SIBLING] = -1
        if other >= 0:
            rows[other, SIBLING] = -1
        top = _meld(rows, child, other)
        rows[top, SIBLING] = pairs
        pairs, child = top, rest
    top = -1
    while pairs >= 0:
        rest = rows[pairs, SIBLING]
        rows[pairs, SIBLING] = -1
        top = _meld(rows, top, pairs)
        pairs = rest
    if top >= 0:
        rows[top, BEFORE] = -1
    return top


@part
def insert(rows: Any, top: int, row: int) -> Any:
    """Put a row into a heap by its key and return the new top."""
    rows[row, CHILD], rows[row, SIBLING], rows[row, BEFORE], rows[row, PLACE] = -1, -1, -1, IN_HEAP
    return _meld(rows, top, row)


@part
def remove(rows: Any, top: int, row: int) -> Any:
    """Take a row out of its heap and return the new top."""
    rows[row, PLACE] = NOWHERE
    rest = _meld_children(rows, rows[row, CHILD])
    if row == top:
        return rest
    before, sibling = rows[row, BEFORE], rows[row, SIBLING]
    if rows[before, CHILD] == row:
        rows[before, CHILD] = sibling
    else:
        rows[before, SIBLING] = sibling
    if sibling >= 0:
        rows[sibling, BEFORE] = before
    return _meld(rows, top, rest)
