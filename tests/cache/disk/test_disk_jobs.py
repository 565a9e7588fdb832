"""DiskTiers of several jobs share one folder, whether these jobs live, were killed or have ended."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.cache.disk.disk_folder import CAPACITY, check_account, files_of, ledger_of
from voxload.cache.disk.blockfile import path_of
from voxload.cache.disk.ledger import LEDGER_BYTES
from voxload.cache.disk.tier import DiskTier

pytestmark = pytest.mark.usefixtures("no_leaks")

KILLED = """
import os
import tier as laws
import voxload.cache.disk.tier as disk
made = disk.DiskTier(sys.argv[1], 2**20)
block = laws.block_of(1, (1, 16, 16, 16))
made.put(laws.key_of("whole"), block)
def stop(descriptor, parts):
    os.pwrite(descriptor, parts[0] + bytes(1000), 0)
    print("half", flush=True)
    sys.stdin.read()
disk.write_whole = stop
made.put(laws.key_of("half"), block)
"""


def test_a_killed_writer(tier_laws: ModuleType, run_child: Callable[..., Any], folder: Path) -> None:
    """SIGKILL half-way: the half is no block, the next tier that opens removes it, and the other blocks stay."""
    block = tier_laws.block_of(1, (1, 16, 16, 16))
    with run_child(KILLED, str(folder)) as child:
        assert child.hear() == "half"
        with closing(DiskTier(folder, CAPACITY)) as tier:  # while it lives, its file counts
            assert tier.used == LEDGER_BYTES + 2 * tier.footprint(block.nbytes)
            child.kill()
            with closing(DiskTier(folder, CAPACITY)) as other:
                assert other.used == tier.used == LEDGER_BYTES + tier.footprint(block.nbytes)
                keys = [tier_laws.key_of("half"), tier_laws.key_of("whole")]
                assert other.inventory(keys) == [False, True]
                assert tier_laws.same_bits(tier_laws.get(other, keys[1], block), block)
    assert not list((folder / ".partial").iterdir())
    assert not list((folder / ".tenants").iterdir())
    check_account(folder)


def test_blocks_of_a_living_tier_stay(tier_laws: ModuleType, folder: Path) -> None:
    """What another open tier owns is read by all, dropped by nobody else, and makes no room."""
    key, block = tier_laws.key_of("a"), tier_laws.block_of(1, (1, 16, 16, 16))
    with closing(DiskTier(folder, 2**14)) as other:
        with closing(DiskTier(folder, CAPACITY)) as owner:
            assert owner.put(key, block)
            assert other.inventory([key]) == [True]
            other.drop(key)
            assert other.holds(key)
            assert other.put(key, block)
            assert not other.put(tier_laws.key_of("b"), block)
        other.drop(key)
        assert not other.holds(key)
        assert other.put(tier_laws.key_of("b"), block)
    check_account(folder)


def test_blocks_of_ended_jobs_make_room(tier_laws: ModuleType, folder: Path) -> None:
    """What an ended job left goes, the oldest first, when room is wanted; but not what `inventory` asked for."""
    block = tier_laws.block_of(1, (1, 16, 16, 16))
    old = [tier_laws.key_of(str(n), data="old") for n in range(4)]
    capacity = LEDGER_BYTES + 5 * DiskTier.footprint(block.nbytes)
    with closing(DiskTier(folder, capacity)) as tier:
        for age, key in enumerate(old):
            assert tier.put(key, block)
            os.utime(path_of(folder, key), (1000 + age, 1000 + age))
    with closing(DiskTier(folder, capacity)) as tier:
        assert tier.inventory(old[1:2]) == [True]
        new = [tier_laws.key_of(str(n), data="new") for n in range(6)]
        assert tier.put(new[0], block)
        assert [tier.holds(key) for key in old] == [True] * 4
        assert tier.put(new[1], block)
        assert [tier.holds(key) for key in old] == [False, True, True, True]
        assert [tier.put(key, block) for key in new[2:]] == [True, True, False, False]
        assert [tier.holds(key) for key in old] == [False, True, False, False]
    with closing(DiskTier(folder, 3 * DiskTier.footprint(block.nbytes) + LEDGER_BYTES)) as tier:
        assert tier.used <= tier.capacity  # a smaller capacity holds from the beginning


JOB = """
import random
import tier as laws
from voxload.cache.disk.tier import DiskTier
folder, seed = sys.argv[1], int(sys.argv[2])
draw, made = random.Random(seed), DiskTier(folder, int(sys.argv[3]))
blocks = [laws.block_of(n, (1, 8, 8 + n, 64)) for n in range(12)]
print("open", flush=True)
sys.stdin.readline()
refused = 0
for turn in range(150):
    number = draw.randrange(12)
    key, block = laws.key_of(str(number)), blocks[number]
    action = draw.choice(("put", "put", "get", "drop"))
    if action == "put":
        refused += not made.put(key, block)
    elif action == "drop":
        made.drop(key)
    else:
        found = laws.get(made, key, block)
        assert found is None or laws.same_bits(found, block)
    assert made.used <= made.capacity
made.close()
print(refused, flush=True)
"""


def test_two_jobs_in_one_folder(run_child: Callable[..., Any], folder: Path) -> None:
    """Two jobs at once, one killed in the end: right bytes, no exception, and never more bytes than the capacity."""
    capacity = 2**16
    with (
        closing(DiskTier(folder, capacity)),
        run_child(JOB, str(folder), "1", str(capacity)) as one,
        run_child(JOB, str(folder), "2", str(capacity)) as two,
    ):
        assert (one.hear(), two.hear()) == ("open", "open")
        one.say("go")
        two.say("go")
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(one.hear)
            most = _locked_sum(folder)
            while not wait([ended], timeout=0.02).done:
                most = max(most, _locked_sum(folder))
        # A fast job may have ended before the first look; its blocks outlive it.
        most = max(most, _locked_sum(folder))
        assert LEDGER_BYTES < most <= capacity
        assert int(ended.result()) >= 0
        two.kill()
    with closing(DiskTier(folder, capacity)):
        pass
    check_account(folder)


def _locked_sum(folder: Path) -> int:
    """Return the bytes of all files at one moment."""
    ledger = ledger_of(folder)
    try:
        with ledger.locked():
            return sum(files_of(folder).values())
    finally:
        ledger.close()
