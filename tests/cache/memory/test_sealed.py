"""Memory without a name: found by nobody, written to by its maker alone, never shorter, there while somebody has it."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.processes import LIMIT
from voxload.cache.memory.attached import AttachedMemory
from voxload.cache.memory.sealed import SealedMemory
from voxload.cache.memory.segment import SHARED
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.protocol import Answer
from voxload.errors import DataError, InternalError, UsageError

CODECS = ("none", "bitshuffle-lz4")
CAPACITY = 2**18

pytestmark = pytest.mark.usefixtures("no_leaks", "no_segments")


class _Both(MemoryTier):
    """A tier without a name, whose answers are compared with those of a reader of its descriptor."""

    def __init__(self, capacity: int, laws: ModuleType, codec: str) -> None:
        super().__init__(capacity, codec=codec, make=SealedMemory)
        self.laws = laws
        self.attached = AttachedMemory(self.path, descriptor=self.descriptor)

    def get_into(self, key: Any, out: Any) -> bool:
        """Ask both."""
        other = self.laws.fresh(out)
        found, answer = super().get_into(key, out), self.attached.fetch(key, other)
        assert found == (answer is Answer.GOT)
        assert self.holds(key) == self.attached.holds(key) == (answer is not Answer.ABSENT)
        assert not found or self.laws.same_bits(out, other)
        return found

    def close(self) -> None:
        """Close both."""
        self.attached.close()
        super().close()


@pytest.mark.long
@pytest.mark.parametrize("codec", CODECS)
def test_the_laws_for_owner_and_reader(tier_laws: ModuleType, codec: str) -> None:
    """The whole kit, of a tier that has no name."""
    tier_laws.check_tier(lambda capacity: MemoryTier(capacity, codec=codec, make=SealedMemory))
    for check in ("blocks", "mismatch", "model", "capacity"):
        getattr(tier_laws, f"check_{check}")(lambda capacity: _Both(capacity, tier_laws, codec))


def test_it_has_no_name() -> None:
    """Where others have theirs; only its owner's own list of open files tells of it."""
    with closing(MemoryTier(CAPACITY, job="test-sealed", make=SealedMemory)) as tier:
        assert not list(SHARED.glob("*test-sealed*"))
        assert not Path(tier.path).exists()
        assert str(Path(f"/proc/self/fd/{tier.descriptor}").readlink()) == "/memfd:voxload-test-sealed-0 (deleted)"


def test_nobody_else_writes_to_it_or_cuts_it(tier_laws: ModuleType) -> None:
    """Neither by its descriptor nor by one that the same user opens anew; the owner goes on writing."""
    with closing(MemoryTier(CAPACITY, make=SealedMemory)) as tier:
        anew = os.open(f"/proc/self/fd/{tier.descriptor}", os.O_RDWR | os.O_CLOEXEC)
        try:
            for descriptor in (tier.descriptor, anew):
                with pytest.raises(OSError, match=r"not permitted|Permission denied"):
                    mmap.mmap(descriptor, CAPACITY)
                with pytest.raises(OSError, match=r"not permitted|Bad file descriptor"):
                    os.pwrite(descriptor, b"!", 2**12)
                for size in (0, CAPACITY - 1, CAPACITY + 1):
                    with pytest.raises(OSError, match=r"not permitted|Invalid argument"):
                        os.ftruncate(descriptor, size)
                with pytest.raises(OSError, match="not permitted"):
                    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        finally:
            os.close(anew)
        assert os.fstat(tier.descriptor).st_mode & 0o777 == 0o600
        assert os.fstat(tier.descriptor).st_blocks * 512 == tier.capacity
        block = tier_laws.block_of(0)
        assert tier.put(tier_laws.key_of("x"), block)
        assert tier_laws.same_bits(tier_laws.get(tier, tier_laws.key_of("x"), block), block)


def test_what_is_not_sealed_is_not_mapped(tmp_path: Path) -> None:
    """A file, memory that others may write to or cut short, and a pipe: none of them is believed."""
    with closing(MemoryTier(CAPACITY)) as named:
        whole = Path(named.path).read_bytes()
    (tmp_path / "file").write_bytes(whole)
    file = os.open(tmp_path / "file", os.O_RDONLY)
    memory = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.write(memory, whole)
    empty = os.memfd_create("y", os.MFD_ALLOW_SEALING)
    pipe = os.pipe()
    try:
        for descriptor in (file, memory, *pipe):
            with pytest.raises(DataError, match="seals 0x0, expected memory with seals"):
                AttachedMemory("given", descriptor=descriptor)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        with pytest.raises(DataError, match="seals 0x6, expected memory with seals"):
            AttachedMemory("given", descriptor=memory)
        fcntl.fcntl(empty, fcntl.F_ADD_SEALS, 0x1F & ~fcntl.F_SEAL_WRITE)
        with pytest.raises(DataError, match="found no bytes, expected a memory tier"):
            AttachedMemory("given", descriptor=empty)
    finally:
        for descriptor in (file, memory, empty, *pipe):
            os.close(descriptor)


def test_sealed_memory_that_is_no_tier_is_refused() -> None:
    """What it says of itself has to agree with its size."""
    with closing(MemoryTier(CAPACITY, make=SealedMemory)) as tier:
        tier.memory[8] ^= 1
        with pytest.raises(DataError, match="expected a memory tier"):
            AttachedMemory("given", descriptor=tier.descriptor)


def test_refusals() -> None:
    """More than the machine has, and the descriptor of a tier that has a name."""
    with pytest.raises(
        UsageError, match=r"bytes projected, expected at most \d+ bytes allowed; lower the tier's capac"
    ):
        MemoryTier(2**50, make=SealedMemory, rows=64)
    with closing(MemoryTier(CAPACITY)) as named, pytest.raises(InternalError, match="one without a name"):
        _ = named.descriptor


OWNER = """
import socket, sys
from voxload.cache.memory.sealed import SealedMemory
from voxload.cache.memory.tier import MemoryTier
from tests.laws import tier as laws
door = socket.socket(fileno=int(sys.argv[1]))
tier = MemoryTier(2**18, make=SealedMemory)
assert tier.put(laws.key_of("x"), laws.block_of(4))
socket.send_fds(door, [b"!"], [tier.descriptor])
door.recv(1)
"""


@pytest.mark.long
def test_a_killed_owner(tier_laws: ModuleType) -> None:
    """What was handed over stays readable where it was mapped, and goes with the last process that has it."""
    here, there = socket.socketpair()
    here.settimeout(LIMIT)
    with here, there:
        command = [sys.executable, "-c", OWNER, str(there.fileno())]
        with subprocess.Popen(command, pass_fds=[there.fileno()], cwd=Path(__file__).parents[3]) as child:
            try:
                _, descriptors, _, _ = socket.recv_fds(here, 1, 4)
                with closing(AttachedMemory("given", descriptor=descriptors[0])) as attached:
                    for descriptor in descriptors:
                        os.close(descriptor)
                    child.kill()
                    assert child.wait(LIMIT) == -signal.SIGKILL
                    block = tier_laws.block_of(4)
                    out = tier_laws.fresh(block)
                    assert attached.fetch(tier_laws.key_of("x"), out) is Answer.GOT
                    assert tier_laws.same_bits(out, block)
                    assert attached.fetch(tier_laws.key_of("y"), out) is Answer.ABSENT
            finally:
                child.kill()
