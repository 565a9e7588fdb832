"""Offload: more is read elsewhere while jobs wait, and less while they do not."""

from __future__ import annotations

import hashlib
import itertools

from hypothesis import given
from hypothesis import strategies as st

from voxload.serve.ring.offload import Offload

BLOCKS = [hashlib.blake2b(str(number).encode(), digest_size=16).digest() for number in range(1000)]


def test_the_share_follows_the_stall() -> None:
    """Up to all, and down to none."""
    offload, stalled = Offload(), 0.0
    for second in range(20):
        stalled += 0.5
        offload.look(float(second), stalled, 1)
    assert offload.share == 1.0
    for second in range(20, 100):
        offload.look(float(second), stalled, 1)
    assert offload.share == 0.0


def test_others_that_do_not_keep_up_are_asked_for_less() -> None:
    """Though jobs wait: more of it would be slower still."""
    offload, stalled = Offload(), 0.0
    for second in range(20):
        stalled += 0.5
        offload.look(float(second), stalled, 1)
    before = offload.share
    offload.refused()
    offload.look(20.0, stalled + 0.5, 1)
    assert offload.share < before
    offload.look(21.0, stalled + 1.0, 1)
    assert offload.share == before
    fixed = Offload(0.5)
    fixed.refused()
    fixed.look(0.0, 0.0, 1)
    fixed.look(1.0, 1.0, 1)
    assert fixed.share == 0.5


def test_a_share_that_was_given_stays() -> None:
    """Whatever jobs meet with."""
    offload = Offload(0.5)
    offload.look(0.0, 0.0, 1)
    offload.look(1.0, 1.0, 1)
    assert offload.share == 0.5
    assert 400 < sum(map(offload.has, BLOCKS)) < 600


def test_what_was_read_elsewhere_is_so_again() -> None:
    """A larger share has the blocks of a smaller one."""
    shares = [Offload(share / 10) for share in range(11)]
    found = [{block for block in BLOCKS if one.has(block)} for one in shares]
    assert all(less <= more for less, more in itertools.pairwise(found))
    assert (found[0], found[-1]) == (set(), set(BLOCKS))


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 100), st.integers(0, 9))))
def test_whatever_is_said(looks: list[tuple[float, float, int]]) -> None:
    """The share is one."""
    offload = Offload()
    for now, stalled, jobs in looks:
        offload.look(now, stalled, jobs)
        assert 0.0 <= offload.share <= 1.0
