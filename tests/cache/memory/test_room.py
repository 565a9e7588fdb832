"""MemoryTier.room_for: blocks that are made where they are kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.support import processes
from voxload.cache.memory.attached import AttachedMemory
from voxload.cache.memory.layout import WINDOW
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.protocol import Answer, BlockKey
from voxload.errors import UsageError
from voxload.geometry import Boundary, Box

pytestmark = pytest.mark.usefixtures("no_leaks", "no_segments")

BLOCK = np.arange(4 * 1024, dtype=np.int32).reshape(4, 4, 16, 16)


def key(number: int) -> BlockKey:
    """Return one of many."""
    return BlockKey("some data", str(number), "x", Box((0, 0, 0), BLOCK.shape[1:]), Boundary.ZERO)


def made(tier: MemoryTier, number: int, value: int) -> bool:
    """Make a block in place; tell whether there was room for it."""
    with tier.room_for(BLOCK.dtype, BLOCK.shape) as room:
        if room is not None:
            room.volume[:] = value
            room.key = key(number)
        return room is not None


def taken(tier: MemoryTier, number: int) -> int | None:
    """Return the value of a block; None where it is not there."""
    out = np.zeros_like(BLOCK)
    if not tier.get_into(key(number), out):
        return None
    assert (out == out.flat[0]).all()
    return int(out.flat[0])


@pytest.fixture
def tier() -> Iterator[MemoryTier]:
    """Yield one with room for three."""
    with closing(MemoryTier(2**16, rows=16)) as found:
        assert found.room // found.footprint(BLOCK.nbytes) == 3
        yield found


@pytest.mark.long
def test_the_laws(tier_laws: ModuleType) -> None:
    """The conformance kit, with every block made in place."""

    class InPlace(MemoryTier):
        """A tier whose blocks are all made there."""

        def put(self, key: BlockKey, block: Any) -> bool:
            """Make a block as it is told."""
            if block.dtype.hasobject:
                raise UsageError("block", found="objects")
            with self.room_for(block.dtype, block.shape) as room:
                if room is not None:
                    np.copyto(room.volume, block)
                    room.key = key
            return self.holds(key)

    tier_laws.check_tier(InPlace)


def test_others_find_it(tier: MemoryTier) -> None:
    """As any other block."""
    out = np.zeros_like(BLOCK)
    with closing(AttachedMemory(tier.path)) as attached:
        with tier.room_for(BLOCK.dtype, BLOCK.shape) as room:
            assert room is not None
            room.volume[:] = BLOCK
            room.key = key(0)
            assert attached.fetch(key(0), out) is Answer.ABSENT
        assert attached.fetch(key(0), out) is Answer.GOT
    assert np.array_equal(out, BLOCK)


def test_what_is_not_finished_is_not_kept(tier: MemoryTier) -> None:
    """Whoever leaves without a key, or by an error, gives the room back."""
    before = tier.used
    for _ in range(10):
        with tier.room_for(BLOCK.dtype, BLOCK.shape) as room:
            assert room is not None
        with pytest.raises(OSError, match="gone"), tier.room_for(BLOCK.dtype, BLOCK.shape):
            raise OSError("gone")
    assert tier.used == before


def test_what_is_there_already_stays(tier: MemoryTier) -> None:
    """And the room of the second is given back."""
    assert made(tier, 0, 1)
    before = tier.used
    assert made(tier, 0, 2)
    assert (taken(tier, 0), tier.used) == (1, before)


def test_no_room(tier: MemoryTier) -> None:
    """Is told before anything is made; also that a block would be packed."""
    assert all(made(tier, number, number) for number in range(3))
    assert not made(tier, 3, 3)
    tier.drop(key(1))
    assert made(tier, 3, 3)
    assert [taken(tier, number) for number in range(4)] == [0, None, 2, 3]
    with closing(MemoryTier(2**18, codec="bitshuffle-lz4")) as packing:
        assert not made(packing, 0, 0)


def test_a_full_table_is_no_room() -> None:
    """Though there are bytes: those of a block that is in no table are given back."""
    with closing(MemoryTier((WINDOW + 8) * MemoryTier.footprint(BLOCK.nbytes), rows=1)) as tier:
        before = tier.used
        assert all(made(tier, number, number) for number in range(WINDOW + 2))
        assert [tier.holds(key(number)) for number in range(WINDOW + 2)] == [True] * WINDOW + [False, False]
        assert tier.used == before + WINDOW * tier.footprint(BLOCK.nbytes)
        assert [taken(tier, number) for number in range(WINDOW)] == list(range(WINDOW))


def test_room_that_somebody_still_reads_is_waited_for(tier: MemoryTier) -> None:
    """Where what was dropped is all that there could be room of."""
    assert all(made(tier, number, number) for number in range(3))
    found: list[bool] = []
    waiting = threading.Thread(target=lambda: found.append(made(tier, 3, 3)))
    with tier.lent(key(1), BLOCK.dtype, BLOCK.shape) as lent:
        assert lent is not None
        tier.drop(key(1))
        waiting.start()
        waiting.join(0.2)
        assert found == []
        assert (lent == 1).all()
    waiting.join(processes.LIMIT)
    assert found == [True]
    assert taken(tier, 3) == 3
