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


@given(st.lists(st.tuples(st.sampled_from("afr"), st.integers(0, 900)), max_size=60), st.integers(0, 3000))
def test_any_sequence_in_a_region_that_changes(steps: list[tuple[str, int]], size: int) -> None:
    """A region ends behind its last piece at least; what is cut off and comes back is one gap with what lies before."""
    arena, taken = Arena(size), dict[int, int]()
    for act, number in steps:
        if act == "a":
            start = arena.allocate(number)
            assert start is not None or _largest_gap(taken, arena.size) < footprint(number)
            if start is not None:
                taken[start] = footprint(number)
        elif act == "f" and taken:
            start = sorted(taken)[number % len(taken)]
            del taken[start]
            arena.free(start)
        elif act == "r":
            wanted = 4 * number
            last = max((start + length for start, length in taken.items()), default=0)
            assert arena.last == last
            if wanted // GRAIN * GRAIN < last:
                with pytest.raises(InternalError, match="a piece taken up to"):
                    arena.resize(wanted)
            else:
                arena.resize(wanted)
                assert arena.size == wanted // GRAIN * GRAIN
        assert arena.used == sum(taken.values())
        assert all(start + length <= arena.size for start, length in taken.items())
        ends = [(start, start + length) for start, length in sorted(taken.items())]
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    for start in taken:
        arena.free(start)
    assert arena.last == 0
    if arena.size:
        assert arena.allocate(arena.size) == 0


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
