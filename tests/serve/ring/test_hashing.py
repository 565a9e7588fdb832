"""HashRing: the same for all who see the same members, fair, and calm when one comes or goes."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from voxload.serve.ring.hashing import HashRing

BLOCKS = [hashlib.blake2b(str(number).encode(), digest_size=16).digest() for number in range(4000)]


def test_all_see_the_same() -> None:
    """Whatever the order in which they hear of members."""
    one, other = HashRing(["a", "b", "c"]), HashRing(["c", "a", "b", "a"])
    assert one.version == other.version
    assert [one.home(block) for block in BLOCKS] == [other.home(block) for block in BLOCKS]
    assert HashRing(["a", "b"]).version != one.version


@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_homes_are_fair(count: int) -> None:
    """None has twice its part, or less than half of it."""
    ring = HashRing(map(str, range(count)))
    found = Counter(map(ring.home, BLOCKS))
    assert len(found) == count
    assert max(found.values()) < 2 * len(BLOCKS) / count
    assert min(found.values()) > len(BLOCKS) / count / 2


def test_who_comes_or_goes_moves_its_own_blocks_only() -> None:
    """Those of others stay where they are."""
    before, after = HashRing("abc"), HashRing("ab")
    for block in BLOCKS:
        assert before.home(block) in ("c", after.home(block))


def test_nobody_is_there() -> None:
    """And no home."""
    assert HashRing([]).home(BLOCKS[0]) is None
