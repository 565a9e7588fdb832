"""MemoryTier and AttachedMemory in several processes: right bytes or none, and no file outlives its owner."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from voxload.cache.memory.attached import AttachedMemory
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.protocol import Answer

CODECS = ("none", "bitshuffle-lz4")
CAPACITY = 2**18

pytestmark = pytest.mark.usefixtures("no_leaks", "no_segments")

OVERWRITE = """
import tier as laws
from voxload.cache.memory.attached import AttachedMemory
from voxload.cache.protocol import Answer
blocks = [laws.block_of(n, (1, 8 + n, 32, 64)) for n in range(6)]
attached, got, asked = AttachedMemory(sys.argv[1]), 0, 0
print("ready", flush=True)
while not attached.holds(laws.key_of("end")):
    number, asked = asked % 6, asked + 1
    out = laws.fresh(blocks[number])
    answer = attached.fetch(laws.key_of(str(number)), out)
    got += answer is Answer.GOT
    if got == 1 and answer is Answer.GOT:
        print("got", flush=True)
    if answer is Answer.WRONG or (answer is Answer.GOT and not laws.same_bits(out, blocks[number])):
        print(answer, flush=True)
print("over", flush=True)
attached.close()
"""


@pytest.mark.long
@pytest.mark.parametrize("codec", CODECS)
def test_overwriting_under_a_reader(tier_laws: ModuleType, run_child: Callable[..., Any], codec: str) -> None:
    """Another process reads, without a lock, what this one drops and overwrites: right bytes or none."""
    blocks = [tier_laws.block_of(number, (1, 8 + number, 32, 64)) for number in range(6)]
    with closing(MemoryTier(2**17, codec=codec)) as tier, run_child(OVERWRITE, tier.path) as child:
        assert child.hear() == "ready"
        with ThreadPoolExecutor(1) as listener:
            first = listener.submit(child.hear)
            for turn in count():  # a reader on a busy machine finds a block later than after 600 turns
                if turn >= 600 and first.done():
                    break
                number, oldest = turn % 6, (turn - 2) % 6
                tier.drop(tier_laws.key_of(str(oldest)))
                tier.put(tier_laws.key_of(str(number)), blocks[number])
        assert first.result() == "got"
        for number in range(6):
            tier.drop(tier_laws.key_of(str(number)))
        assert tier.put(tier_laws.key_of("end"), blocks[0])
        assert child.hear() == "over"


KILLED = """
import os
import tier as laws
import voxload.cache.memory.tier as memory
owner = memory.MemoryTier(2**20, codec=sys.argv[1], job="test-killed")
block = laws.block_of(0, (1, 16, 16, 16))
owner.put(laws.key_of("whole"), block)
def stop(source, target, seed):
    target[: len(target) // 2] = source[: len(target) // 2]
    print(owner.path, flush=True)
    sys.stdin.read()
memory.copy_and_sum = stop
owner.put(laws.key_of("half"), block)
"""


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("codec", CODECS)
def test_a_killed_owner(tier_laws: ModuleType, run_child: Callable[..., Any], codec: str) -> None:
    """SIGKILL half-way through a block: readers see the others and not that one, and the next tier removes the file."""
    block = tier_laws.block_of(0, (1, 16, 16, 16))
    with run_child(KILLED, codec) as child:
        path = child.hear()
        with closing(AttachedMemory(path)) as attached:
            with closing(MemoryTier(CAPACITY)):
                assert Path(path).exists()
            child.kill()
            assert attached.fetch(tier_laws.key_of("half"), tier_laws.fresh(block)) is Answer.ABSENT
            with closing(MemoryTier(CAPACITY)):
                assert not Path(path).exists()
            assert tier_laws.same_bits(tier_laws.get(attached, tier_laws.key_of("whole"), block), block)


ENDS = """
import atexit, os
from voxload.cache.memory.tier import MemoryTier
owner = MemoryTier(2**20)
if os.fork() == 0:
    del owner
    os._exit(0)
os.wait()
print(os.path.exists(owner.path), owner.path, flush=True)
atexit._run_exitfuncs()  # what the interpreter's end begins with; the rest of it takes seconds here
os._exit(0)
"""


def test_a_tier_that_nobody_closed(run_child: Callable[..., Any]) -> None:
    """The file goes with the process that made it, and not with a fork of that."""
    with run_child(ENDS) as child:
        is_there, path = child.hear().split()
        assert is_there == "True"
        assert child.wait() == 0
        assert not Path(path).exists()


REFUSED = """
import os, resource
from voxload.cache.memory.tier import MemoryTier
from voxload.errors import UsageError
before = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))
try:
    MemoryTier(2**20)
except UsageError as error:
    print(error, flush=True)
print(len(os.listdir("/proc/self/fd")) - before, flush=True)
"""


def test_a_system_that_does_not_allocate(run_child: Callable[..., Any]) -> None:
    """What the system refuses after all is the same error, and leaves nothing; a limit stands in for a full system."""
    with run_child(REFUSED) as child:
        assert f"found {2**20} bytes projected" in child.hear()
        assert child.hear() == "0"
