"""MemoryTier and AttachedMemory: the laws, damage, refusals, and nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import processes
from voxload.cache.form import Form
from voxload.cache.memory.attached import AttachedMemory
from voxload.cache.memory.layout import ROW, WINDOW, Layout
from voxload.cache.memory.segment import PREFIX, SHARED, remove_dead
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.protocol import Answer
from voxload.errors import DataError, NotFoundError, UsageError

CODECS = ("none", "bitshuffle-lz4")
CAPACITY = 2**18

pytestmark = pytest.mark.usefixtures("no_leaks", "no_segments")


@pytest.fixture(params=CODECS)
def tier(request: pytest.FixtureRequest) -> Iterator[MemoryTier]:
    """Return a tier of each codec."""
    with closing(MemoryTier(CAPACITY, codec=request.param, job="test", rank=3)) as made:
        yield made


@pytest.fixture
def attached(tier: MemoryTier) -> Iterator[AttachedMemory]:
    """Return another look at the tier."""
    with closing(AttachedMemory(tier.path)) as made:
        yield made


@pytest.mark.parametrize("codec", CODECS)
def test_the_laws(tier_laws: ModuleType, codec: str) -> None:
    """The conformance kit."""
    tier_laws.check_tier(lambda capacity: MemoryTier(capacity, codec=codec))


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("codec", CODECS)
def test_an_attached_reader_sees_what_the_owner_has(tier_laws: ModuleType, codec: str) -> None:
    """The whole kit, with every answer of the owner compared with that of a reader attached to its file."""

    class Both(MemoryTier):
        """A tier whose answers are compared."""

        def __init__(self, capacity: int) -> None:
            super().__init__(capacity, codec=codec)
            self.attached = AttachedMemory(self.path)

        def get_into(self, key: Any, out: Any) -> bool:
            """Ask both."""
            other = tier_laws.fresh(out)
            found, answer = super().get_into(key, out), self.attached.fetch(key, other)
            assert found == (answer is Answer.GOT)
            assert self.holds(key) == self.attached.holds(key) == (answer is not Answer.ABSENT)
            assert not found or tier_laws.same_bits(out, other)
            return found

        def close(self) -> None:
            """Close both."""
            self.attached.close()
            super().close()

    for check in ("blocks", "mismatch", "model", "capacity"):
        getattr(tier_laws, f"check_{check}")(Both)


def test_the_file_is_private_named_and_whole(tier: MemoryTier) -> None:
    """Its name tells job and rank, nobody else may read it, and all its bytes are there before the first block is."""
    path, status = Path(tier.path), Path(tier.path).stat()
    assert path.name.startswith("voxload-tier-test-3-")
    assert status.st_mode & 0o777 == 0o600
    assert status.st_size == tier.capacity == status.st_blocks * 512
    assert tier.room + tier.used == tier.capacity


@given(data=st.data())
@settings(max_examples=15)
def test_flipped_bits_never_pass(tier_laws: ModuleType, data: st.DataObject) -> None:
    """Any bit of any byte of the file: owner and readers give the right bytes or none."""
    codec = data.draw(st.sampled_from(CODECS))
    blocks = {tier_laws.key_of(str(n)): tier_laws.block_of(n, (1, 16, 16, 16)) for n in range(4)}
    with closing(MemoryTier(CAPACITY // 4, codec=codec)) as tier, closing(AttachedMemory(tier.path)) as attached:
        for key, block in blocks.items():
            assert tier.put(key, block)
        used = np.flatnonzero(tier.memory[4096:]) + 4096
        places = st.one_of(st.sampled_from(used.tolist()), st.integers(4096, tier.capacity - 1))
        for place, bit in data.draw(st.lists(st.tuples(places, st.integers(0, 7)), min_size=1, max_size=40)):
            tier.memory[place] ^= 1 << bit
        for key, block in blocks.items():
            for found in (tier_laws.get(attached, key, block), _quietly(tier_laws, tier, key, block)):
                assert found is None or tier_laws.same_bits(found, block)


def _quietly(laws: ModuleType, tier: MemoryTier, key: Any, block: Any) -> Any:
    try:
        return laws.get(tier, key, block)
    except RuntimeWarning as warning:
        assert "checksum" in str(warning)  # noqa: PT017 - tests turn warnings into errors; not all examples warn
        return None


def test_a_damaged_block_is_dropped_with_one_warning(
    tier_laws: ModuleType, tier: MemoryTier, attached: AttachedMemory
) -> None:
    """A reader calls it wrong, the owner drops it, warns once whatever follows, and stores it anew."""
    keys, block = [tier_laws.key_of(name) for name in "abc"], tier_laws.block_of(0, (1, 16, 16, 16))
    for key in keys:
        assert tier.put(key, block)
    tier.memory[_span(tier, keys[0])] ^= 16
    tier.memory[_span(tier, keys[1])] ^= 16
    assert attached.fetch(keys[0], tier_laws.fresh(block)) is Answer.WRONG
    with pytest.warns(RuntimeWarning, match="checksum.*the run goes on.*memory of this node") as warnings:
        assert [tier.get_into(key, tier_laws.fresh(block)) for key in keys] == [False, False, True]
    assert len(warnings) == 1
    assert [tier.holds(key) for key in keys] == [False, False, True]
    assert attached.fetch(keys[0], tier_laws.fresh(block)) is Answer.ABSENT
    assert tier.put(keys[0], block)
    assert tier_laws.same_bits(tier_laws.get(tier, keys[0], block), block)


def _span(tier: MemoryTier, key: Any) -> int:
    """Return where the bytes of a block end, but one."""
    layout = Layout.parse(tier.memory[:64].tobytes(), tier.capacity, "")
    row = layout.find(key.digest, tier.memory[layout.window(key.digest)])
    assert row is not None
    return int(row.span.stop) - 1


def test_a_full_window_is_no_room(tier_laws: ModuleType) -> None:
    """A table of one row has room for the rows of its window and no more; a dropped block's row serves another."""
    block = tier_laws.block_of(0, (1, 2, 2, 2))
    with closing(MemoryTier(CAPACITY, rows=1)) as tier:
        kept = [tier.put(tier_laws.key_of(str(number)), block) for number in range(WINDOW + 2)]
        assert kept == [True] * WINDOW + [False, False]
        used = tier.used
        tier.drop(tier_laws.key_of("7"))
        assert tier.put(tier_laws.key_of("another"), block)
        assert tier.used == used


def test_windows_do_not_fill_up() -> None:
    """Of a table three quarters full, every block has found a row in its window."""
    layout = Layout(10_000, 2**30)
    taken = bytearray(layout.rows + WINDOW - 1)
    content = np.random.default_rng(0).bytes(16 * 7500)
    for start in range(0, len(content), 16):
        home = layout.home(content[start : start + 16])
        row = taken.find(0, home, home + WINDOW)
        assert row >= 0
        taken[row] = 1
    assert ROW.itemsize == 64


def test_readers_pin_what_they_read(tier_laws: ModuleType) -> None:
    """A block that is dropped while threads read it keeps its bytes until they are done."""
    big = tier_laws.block_of(0, (1, 64, 64, 256))
    other = tier_laws.block_of(3, (1, 64, 64, 256))
    with closing(MemoryTier(big.nbytes + 2**16)) as tier:
        for _ in range(10):
            assert tier.put(tier_laws.key_of("big"), big)
            with ThreadPoolExecutor(2) as pool:
                reads = [pool.submit(tier_laws.get, tier, tier_laws.key_of("big"), big) for _ in range(2)]
                tier.drop(tier_laws.key_of("big"))
                is_kept = tier.put(tier_laws.key_of("other"), other)
                found = [read.result() for read in reads]
            assert all(block is None or tier_laws.same_bits(block, big) for block in found)
            if is_kept:
                assert tier_laws.same_bits(tier_laws.get(tier, tier_laws.key_of("other"), other), other)
            tier.drop(tier_laws.key_of("other"))


def test_waiting_for_a_block(tier_laws: ModuleType) -> None:
    """Who waits is woken by the block, by the end of its patience, or by the end of the tier."""
    tier, key, block = MemoryTier(CAPACITY), tier_laws.key_of("a"), tier_laws.block_of(0)
    assert not tier.wait_for(key, 0)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(tier.wait_for, key, 60)
        tier.put(tier_laws.key_of("b"), block)
        assert not waiting.done()
        tier.put(key, block)
        assert waiting.result(timeout=processes.LIMIT)
        waiting = pool.submit(tier.wait_for, tier_laws.key_of("never"), 60)
        tier.close()
        assert not waiting.result(timeout=processes.LIMIT)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"capacity": 4096}, "raise the capacity"),
        ({"capacity": 2**60}, f"{2**60} bytes projected.*bytes allowed.*--shm-size"),
        ({"capacity": CAPACITY, "codec": "zip"}, "'bitshuffle-lz4'"),
        ({"capacity": CAPACITY, "job": "../x"}, "letters"),
        ({"capacity": CAPACITY, "rows": 0}, "a row or more"),
    ],
)
def test_refusals(arguments: dict[str, Any], words: str) -> None:
    """What cannot be held is refused before anything is allocated, with both numbers."""
    with pytest.raises(UsageError, match=words):
        MemoryTier(**arguments)


def test_attaching_to_something_else(tmp_path: Path, tier: MemoryTier) -> None:
    """What is not there, and what is no tier, is named."""
    with pytest.raises(NotFoundError, match="no such file"):
        AttachedMemory(str(SHARED / "voxload-tier-none"))
    other = tmp_path / "other"
    other.write_bytes(tier.memory[:8192].tobytes())
    with pytest.raises(DataError, match="8192 bytes"):
        AttachedMemory(str(other))


@pytest.mark.parametrize("is_stored_again", [False, True])
def test_a_block_that_moves_while_it_is_read(
    tier_laws: ModuleType,
    tier: MemoryTier,
    attached: AttachedMemory,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_stored_again: bool,
) -> None:
    """What takes the place of a block between a look at its row and one at its bytes is not taken for damage."""
    key, other, block = tier_laws.key_of("a"), tier_laws.key_of("b"), tier_laws.block_of(0)
    assert tier.put(key, block)
    takes, calls = Form.takes, []

    def interrupted(self: Form, *rest: Any) -> bool:
        calls.append(self)
        if len(calls) == 1:
            tier.drop(key)
            tier.put(other, block + 1)
            if is_stored_again:
                tier.put(key, block)
        return takes(self, *rest)

    monkeypatch.setattr(Form, "takes", interrupted)
    out = tier_laws.fresh(block)
    assert attached.fetch(key, out) is (Answer.GOT if is_stored_again else Answer.ABSENT)
    assert not is_stored_again or tier_laws.same_bits(out, block)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_what_another_user_left_in_memory_stays(tmp_path: Path) -> None:
    """Root removes its own dead segments and nobody else's."""
    own, other, fifo = (tmp_path / f"{PREFIX}{name}" for name in ("own", "other", "fifo"))
    for path in (own, other):
        path.touch(0o600)
    os.chown(other, 61002, 61002)
    os.mkfifo(fifo)
    remove_dead(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {other.name, fifo.name}


def open_descriptors() -> int:
    """Return how many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_closing_leaves_no_descriptor() -> None:
    """Neither tier nor reader keeps one open."""
    before = open_descriptors()
    tier = MemoryTier(CAPACITY)
    attached = AttachedMemory(tier.path)
    window = tier.memory[:64]
    attached.close()
    tier.close()
    assert bytes(window[:7]) == b"voxlmem"  # who lies over the memory keeps it
    del window, tier, attached
    assert open_descriptors() == before


def test_a_block_is_lent_as_it_lies(tier_laws: ModuleType) -> None:
    """Read-only, compared first, and there until the code is done; not where it is damaged, packed or of other form."""
    block, key = tier_laws.block_of(1), tier_laws.key_of("a")
    with closing(MemoryTier(2**20)) as tier:
        assert tier.put(key, block)
        with tier.lent(key, block.dtype, block.shape) as found:
            assert found is not None
            assert np.array_equal(found, block)
            assert not found.flags.writeable
            used = tier.used
            tier.drop(key)
            assert tier.used == used  # somebody reads it
            assert np.array_equal(found, block)
        assert tier.used < used
        assert tier.put(key, block)
        for dtype, shape in ((np.dtype("i4"), block.shape), (block.dtype, block.shape[::-1])):
            with tier.lent(key, dtype, shape) as found:
                assert found is None
        with tier.lent(tier_laws.key_of("b"), block.dtype, block.shape) as found:
            assert found is None
        place = next(iter(tier._entries.values())).data
        place[7] ^= 1
        with tier.lent(key, block.dtype, block.shape) as found:
            assert found is None
        with pytest.warns(RuntimeWarning, match="does not agree with its checksum"):
            assert not tier.get_into(key, np.empty_like(block))
        assert not tier.holds(key)
    with closing(MemoryTier(2**20, codec="bitshuffle-lz4")) as tier:
        packed = tier_laws.block_of(2)
        assert tier.put(key, packed)
        with tier.lent(key, packed.dtype, packed.shape) as found:
            assert found is None
