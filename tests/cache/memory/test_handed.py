"""Memory that a process of root hands over: written by one, read by others, given back to the system piece by piece."""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.laws import tier as laws
from tests.support.processes import LIMIT
from voxload.cache.memory.attached import AttachedMemory
from voxload.cache.memory.handed import SEALS, HandedMemory, is_handed, memory_to_hand, punch
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.protocol import Answer
from voxload.errors import InternalError, StorageError

CAPACITY = 2**18
PAGE = mmap.PAGESIZE
pytestmark = [
    pytest.mark.usefixtures("no_leaks", "no_segments"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose memory it is"),
]


class _Given:
    """Memory of root's, and tiers in it."""

    def __init__(self, size: int = CAPACITY) -> None:
        self.writable, self.readable = memory_to_hand("test", size)

    def tier(self, usable: int, size: int = CAPACITY) -> MemoryTier:
        """Return a tier in it."""
        make = partial(HandedMemory, writable=self.writable, readable=self.readable, usable=usable)
        return MemoryTier(size, job="test", make=make)

    @property
    def allocated(self) -> int:
        """Bytes that the system has given."""
        return 512 * os.fstat(self.writable).st_blocks

    def close(self) -> None:
        """Close both descriptors."""
        os.close(self.writable)
        os.close(self.readable)


@pytest.fixture
def given() -> Iterator[_Given]:
    """Give memory to a test."""
    with closing(_Given()) as found:
        yield found


class _Whole(MemoryTier):
    """A tier that has memory of its own to use."""

    def __init__(self, capacity: int) -> None:
        with closing(_Given(capacity)) as given:
            make = partial(HandedMemory, writable=given.writable, readable=given.readable, usable=capacity)
            super().__init__(capacity, make=make)


class _Both(_Whole):
    """Such a tier, whose answers are compared with those of a reader of its descriptor."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.attached = AttachedMemory(self.path, descriptor=self.descriptor)

    def get_into(self, key: Any, out: Any) -> bool:
        """Ask both."""
        other = laws.fresh(out)
        found, answer = super().get_into(key, out), self.attached.fetch(key, other)
        assert found == (answer is Answer.GOT)
        assert not found or laws.same_bits(out, other)
        return found

    def close(self) -> None:
        """Close both."""
        self.attached.close()
        super().close()


@pytest.mark.long
def test_the_laws_for_owner_and_reader(tier_laws: ModuleType) -> None:
    """The whole kit."""
    tier_laws.check_tier(_Whole)
    for check in ("blocks", "mismatch", "model", "capacity"):
        getattr(tier_laws, f"check_{check}")(_Both)


def test_what_root_hands_over_is_root_s(given: _Given) -> None:
    """Of a mode that nobody writes by, never shorter or longer; nothing of it is there before it is used."""
    assert is_handed(given.readable, fcntl.fcntl(given.readable, fcntl.F_GET_SEALS))
    assert not is_handed(given.readable, SEALS & ~fcntl.F_SEAL_SHRINK)
    assert given.allocated == 0
    for size in (0, 2 * CAPACITY):
        with pytest.raises(PermissionError):
            os.ftruncate(given.writable, size)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(given.readable, b"x")
    with pytest.raises(PermissionError):
        mmap.mmap(given.readable, CAPACITY)
    other = os.memfd_create("other", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(other, 0o600)
        assert not is_handed(other, SEALS)
    finally:
        os.close(other)


def test_what_may_not_be_used_any_more_is_given_back(given: _Given) -> None:
    """At once, blocks there with it; what is before it stays, and what is used anew is there again."""
    with closing(given.tier(CAPACITY)) as tier, closing(AttachedMemory(tier.path, descriptor=tier.descriptor)) as other:
        keys = [laws.key_of(str(number)) for number in range(40)]
        blocks = [laws.block_of(number, (1, 8, 16, 16)) for number in range(40)]
        assert all(map(tier.put, keys, blocks))
        full = tier.used
        gone = set(tier.resize(CAPACITY // 2))
        assert 0 < len(gone) < 40
        assert given.allocated <= CAPACITY // 2 + PAGE
        assert tier.used <= CAPACITY // 2 < full
        for key, block in zip(keys, blocks, strict=True):
            found = laws.fresh(block)
            is_there = key.digest not in gone
            assert tier.get_into(key, found) == is_there
            assert (other.fetch(key, laws.fresh(block)) is Answer.GOT) == is_there
            assert not is_there or laws.same_bits(found, block)
        assert tier.room == (CAPACITY // 2 - tier.overhead) // 64 * 64
        assert tier.resize(CAPACITY) == []
        assert all(map(tier.put, keys, blocks))
        assert tier.used == full
        assert set(tier.resize(0)) == {key.digest for key in keys}
        assert tier.used == tier.overhead
        assert not tier.put(keys[0], blocks[0])


def test_less_memory_waits_for_who_reads_there(given: _Given) -> None:
    """And takes the room once they are done."""
    key, block = laws.key_of("one"), laws.block_of(2, (1, 8, 16, 16))
    with closing(given.tier(CAPACITY)) as tier:
        assert tier.put(key, block)
        is_less = threading.Event()

        def less() -> None:
            assert tier.resize(0) == [key.digest]
            is_less.set()

        with tier.lent(key, block.dtype, block.shape) as lent:
            thread = threading.Thread(target=less)
            thread.start()
            while tier.holds(key):
                pass
            assert lent is not None
            assert laws.same_bits(lent.copy(), block)
            assert not is_less.is_set()
        del lent
        thread.join(LIMIT)
        assert is_less.is_set()


def test_a_hole_that_root_makes_is_no_block(given: _Given) -> None:
    """Whoever does not give up memory has it taken: who reads there finds zeros, which agree with no checksum."""
    key, block = laws.key_of("one"), laws.block_of(1, (1, 8, 16, 16))
    with closing(given.tier(CAPACITY)) as tier, closing(AttachedMemory(tier.path, descriptor=tier.descriptor)) as other:
        assert tier.put(key, block)
        punch(given.writable, -(-tier.overhead // PAGE) * PAGE, CAPACITY)
        assert other.fetch(key, laws.fresh(block)) is not Answer.GOT
        with pytest.warns(RuntimeWarning, match="checksum"):
            assert not tier.get_into(key, laws.fresh(block))


def test_memory_that_the_system_does_not_give(given: _Given, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is an error, and changes nothing."""
    key, block = laws.key_of("one"), laws.block_of(1, (1, 8, 16, 16))
    with closing(given.tier(CAPACITY // 2)) as tier:
        assert tier.put(key, block)

        def refused(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", refused)
            with pytest.raises(StorageError, match="No space left on device"):
                tier.resize(CAPACITY)
        found = laws.fresh(block)
        assert tier.get_into(key, found)
        assert laws.same_bits(found, block)
        assert tier.room < CAPACITY // 2


def test_other_memory_keeps_its_length() -> None:
    """A tier with a name, and sealed memory."""
    with closing(MemoryTier(CAPACITY)) as tier, pytest.raises(InternalError, match="handed over"):
        tier.resize(0)


def test_content_is_what_was_put(given: _Given) -> None:
    """By the digest of its key, while it is there and whole."""
    key, block = laws.key_of("one"), laws.block_of(1, (1, 8, 16, 16))
    with closing(given.tier(CAPACITY)) as tier:
        assert tier.content(key.digest) is None
        assert tier.put(key, block)
        found = tier.content(key.digest)
        assert found is not None
        assert np.array_equal(np.frombuffer(found, block.dtype).reshape(block.shape), block)
        punch(given.writable, -(-tier.overhead // PAGE) * PAGE, CAPACITY)
        assert tier.content(key.digest) is None


def test_it_is_found_by_nobody(given: _Given) -> None:
    """But in the lists of open files of who has it."""
    with closing(given.tier(CAPACITY)) as tier:
        assert not Path(tier.path).exists()
        assert "memfd:voxload-test" in str(Path(f"/proc/self/fd/{tier.descriptor}").readlink())
