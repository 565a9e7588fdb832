"""Arena: pieces never overlap, and all that is given back is one piece again."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.cache.memory.arena import GRAIN, Arena, footprint
from voxload.errors import InternalError


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 900)), max_size=60), st.integers(0, 6000))
def test_any_sequence(steps: list[tuple[bool, int]], size: int) -> None:
    """Pieces are disjoint, aligned and inside; `used` counts them; refused is only what no gap can hold."""
    arena, taken = Arena(size), dict[int, int]()
    for is_wanted, number in steps:
        if is_wanted:
            start = arena.allocate(number)
            if start is None:
                assert _largest_gap(taken, size // GRAIN * GRAIN) < footprint(number)
            else:
                assert start % GRAIN == 0
                assert start + number <= size
                taken[start] = footprint(number)
        elif taken:
            start = sorted(taken)[number % len(taken)]
            del taken[start]
            arena.free(start)
        assert arena.used == sum(taken.values())
        ends = [(start, start + length) for start, length in sorted(taken.items())]
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    for start in taken:
        arena.free(start)
    if size >= GRAIN:
        assert arena.allocate(size // GRAIN * GRAIN) == 0


def _largest_gap(taken: dict[int, int], size: int) -> int:
    at, largest = 0, 0
    for start, length in sorted(taken.items()):
        largest, at = max(largest, start - at), start + length
    return max(largest, size - at)


def test_the_best_fit_is_taken() -> None:
    """Of two gaps, the smaller one that is large enough."""
    arena = Arena(10 * GRAIN)
    first, _, third = (arena.allocate(count * GRAIN) for count in (3, 1, 2))
    arena.allocate(4 * GRAIN)
    assert first is not None
    assert third is not None
    arena.free(first)
    arena.free(third)
    assert arena.allocate(2 * GRAIN) == third
    assert arena.allocate(1) == first


def test_what_was_not_taken_cannot_be_given_back() -> None:
    """A bug is an error at once, not two blocks in one place later."""
    with pytest.raises(InternalError):
        Arena(GRAIN).free(0)
