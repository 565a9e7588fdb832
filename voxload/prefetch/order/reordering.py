"""Reordering: which shuffle each epoch takes, so that groups find more in their own tiers of what they used last; pure.

SOLAR orders a run's shuffles as a path through a graph (Sun et al., VLDB 2022, arXiv 2211.00224): an edge counts what a
group still keeps of one shuffle that it uses in another. Each shuffle is used once, as without it; what is trained on
in an epoch of a number changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from voxload.prefetch.line import EpochOrder, Held, Ints, Line
from voxload.prefetch.policies.protocol import Policy

Shuffles = tuple[int, ...]
"""For each epoch, from 0 on, the number that seeds its shuffle; epochs behind the last of them take their own."""

_MOVES = 200
"""Most pieces of a path that are put elsewhere, one after the other: each takes a look through all of it."""
_PIECE = 3
"""Most epochs of such a piece, as Or-opt has it (Or, 1976)."""
_AHEAD = 3
"""Epochs that a policy looks ahead, as in a loader."""


def shuffle_of(shuffles: Shuffles, epoch: int) -> int:
    """Return the number that seeds the shuffle of an epoch."""
    # Numbers below 0 are foreseen where set_epoch goes downwards.
    return shuffles[epoch] if 0 <= epoch < len(shuffles) else epoch


def reorder(orders: Sequence[EpochOrder], line: Line, held: Held, policy: Policy) -> Shuffles:
    """Return an order of shuffles in which a policy moves less than in their own, or their own.

    Takes a time that grows with the square of the epochs, and with samples times that.

    Parameters
    ----------
    orders
        What samplers deal in each epoch that is to come, as without this.
    line, held
        The rooms of the groups, and what they hold before the first of them.
    policy
        Who keeps what: it decides what groups find, and with it whether another order is better.

    Returns
    -------
    tuple of int
        A permutation of the places in `orders`.
    """
    own = tuple(range(len(orders)))
    if not orders:
        return own
    found = tuple(_path(_finds(orders, line, held)))
    if found == own:
        return own
    is_less = _moved(orders, found, line, held, policy) < _moved(orders, own, line, held, policy)
    return found if is_less else own


def _finds(orders: Sequence[EpochOrder], line: Line, held: Held) -> Ints:
    """Return what groups find of what they keep: ``(1 + epochs, epochs)`` samples, by the epoch before and the next.

    Row 0 is what is held at the start. A group keeps what it used last, as much as its room has.
    """
    samples, size = len(line.sizes), max(1, int(line.sizes.max(initial=1)))
    rooms = [(room.memory + room.disk) // size for room in line.rooms]
    kept = np.full((1 + len(orders), samples), -1, np.int32)
    used = np.full((len(orders), samples), -1, np.int32)
    kept[0, held.sample] = held.group
    for place, order in enumerate(orders):
        for group, row in enumerate(order.samples):
            drawn = row[row >= 0]
            used[place, drawn] = group
            _, last = np.unique(drawn[::-1], return_index=True)
            newest = drawn[::-1][np.sort(last)[: rooms[group]]]
            kept[1 + place, newest] = group
    finds = np.zeros((1 + len(orders), len(orders)), np.int64)
    for before, keeper in enumerate(kept):
        places = np.flatnonzero(keeper >= 0)
        finds[before] = (used[:, places] == keeper[places]).sum(axis=1)
    return finds


def _path(finds: Ints) -> list[int]:
    """Return an order of the columns in which much is found, from row 0 on.

    The best of those that begin with any of them and go on with the best next one; then Or-opt.
    """
    path = max((_greedy(finds, first) for first in range(finds.shape[1])), key=lambda one: _found(one, finds))
    for _ in range(_MOVES):
        better = _Move.best(path, finds)
        if better is None:
            break
        path = better.carried_out(path)
    return path


def _greedy(finds: Ints, first: int) -> list[int]:
    path, left = [first], np.ones(finds.shape[1], np.bool_)
    left[first] = False
    while left.any():
        path.append(int(np.where(left, finds[path[-1] + 1], -1).argmax()))  # of equal ones the first, on all ranks
        left[path[-1]] = False
    return path


def _found(path: Sequence[int], finds: Ints) -> int:
    return int(finds[[0, *(place + 1 for place in path[:-1])], list(path)].sum())


@dataclass(frozen=True, slots=True)
class _Move:
    """A piece of a path that goes elsewhere."""

    begin: int
    end: int
    to: int
    """Place in what is left of the path before which it goes."""

    @classmethod
    def best(cls, path: Sequence[int], finds: Ints) -> _Move | None:
        """Return the move that gains most; None where none gains."""
        gain, found = 0, None
        for begin in range(len(path)):
            for end in range(begin + 1, min(begin + _PIECE, len(path)) + 1):
                rest = np.array([*path[:begin], *path[end:]], np.int64)
                if not len(rest):
                    continue
                rows = np.concatenate([[0], rest + 1])
                was = _joined(rows[begin], path[begin], path[end - 1], path[end : end + 1], finds)
                # Between each two of what is left, and behind its last one.
                into = finds[rows, path[begin]]
                into[:-1] += finds[path[end - 1] + 1, rest] - finds[rows[:-1], rest]
                gains = into - was
                to = int(gains.argmax())
                if gains[to] > gain:
                    gain, found = int(gains[to]), cls(begin, end, to)
        return found

    def carried_out(self, path: Sequence[int]) -> list[int]:
        """Return the path after it."""
        rest = [*path[: self.begin], *path[self.end :]]
        return [*rest[: self.to], *path[self.begin : self.end], *rest[self.to :]]


def _joined(row: int, first: int, last: int, behind: Sequence[int], finds: Ints) -> int:
    """Return what a piece of a path finds where it is, beside what the path would find there without it."""
    found = int(finds[row, first])
    return found + sum(int(finds[last + 1, after]) - int(finds[row, after]) for after in behind)


def _moved(orders: Sequence[EpochOrder], path: Sequence[int], line: Line, held: Held, policy: Policy) -> int:
    """Return the bytes from the storage and from peers that a policy plans for shuffles in an order."""
    state, moved = policy.begin(line, held), 0
    run = [EpochOrder(place, orders[number].samples) for place, number in enumerate(path)]
    for place, order in enumerate(run):
        placement, state = policy.place(state, order, run[place + 1 : place + 1 + _AHEAD])
        found = placement.bytes_by_source(line.sizes)
        moved += found.storage + found.peer_memory + found.peer_disk
    return moved
