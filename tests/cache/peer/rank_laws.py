"""Rank 0 of the tests of MPI: checks the laws against the other ranks, which are owners.

    mpiexec -n 1 python rank_laws.py FOLDER : -n 2 python owner.py FOLDER/orders mpi

Each owner is told what to do over a local socket, and calls MPI only when windows are set up and taken down.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy.typing as npt
import pytest

from voxload.cache.memory.tier import MemoryTier
from voxload.cache.peer.mpi import MpiPeers, split_world
from voxload.cache.protocol import Answer, BlockKey
from voxload.errors import UsageError

OWNERS = 2
CAPACITY = 2**23
TIMEOUT = 60.0


class Remote:
    """An owner in another rank."""

    def __init__(self, link: Connection) -> None:
        self._link = link
        link.send(b"")
        address, self.pid = link.recv()
        self.arena = address.arena
        self.group = -1

    def put(self, key: BlockKey, block: npt.NDArray[Any]) -> bool:
        """Store a block."""
        return bool(self._tell("put", key, block))

    def put_soon(self, key: BlockKey, block: npt.NDArray[Any]) -> None:
        """Store a block a moment later."""
        self._tell("put_soon", key, block)

    def drop(self, key: BlockKey) -> None:
        """Forget a block."""
        self._tell("drop", key)

    def _tell(self, *order: Any) -> Any:
        self._link.send(order)
        return self._link.recv()

    def end(self) -> None:
        """Let it end."""
        self._link.send(None)

    def threads(self) -> int:
        """Return how many threads it had in the end."""
        return int(self._link.recv())


def load_laws() -> ModuleType:
    """Return the conformance kit of peers."""
    path = Path(__file__).parents[2] / "laws" / "peers.py"
    spec = importlib.util.spec_from_file_location("laws_of_peers", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find_groups(laws: ModuleType, peers: MpiPeers, owners: list[Remote]) -> None:
    """Find out which group each owner is: a block that only it has tells."""
    for owner in owners:
        block = laws.random_block((1, 4, 4, 4))
        key = laws.fresh_key(block.shape)
        owner.put(key, block)
        found = [
            group for group in range(1, OWNERS + 1) if laws.Line(peers, group, owner).get(key, block)[0] is Answer.GOT
        ]
        assert len(found) == 1
        owner.group = found[0]
        owner.drop(key)
    assert sorted(owner.group for owner in owners) == [1, 2]


def check_own_block(laws: ModuleType, peers: MpiPeers, memory: MemoryTier) -> None:
    """Check that a rank has its own blocks too, and that a group that there is not is refused."""
    block = laws.random_block((1, 9, 9, 9))
    key = laws.fresh_key(block.shape)
    memory.put(key, block)
    answer, out = laws.Line(peers, 0, None).get(key, block)
    assert answer is Answer.GOT
    assert laws.same_bits(out, block)
    with pytest.raises(UsageError, match="0 to 2"):
        peers.get_into(OWNERS + 1, key, block, wait=0)


def check_stopped_owner(laws: ModuleType, peers: MpiPeers, owner: Remote) -> None:
    """Check that a get from a process that is stopped ends: with the right block, for nobody asks it, or LOST."""
    block = laws.random_block((2, 40, 40, 40))
    key = laws.fresh_key(block.shape)
    owner.put(key, block)
    line = laws.Line(peers, owner.group, owner)
    assert line.get(key, block)[0] is Answer.GOT
    os.kill(owner.pid, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        answer, out = line.get(key, block)
        assert time.monotonic() - begin < TIMEOUT + laws.SLACK
        assert answer is Answer.LOST or (answer is Answer.GOT and laws.same_bits(out, block))
    finally:
        os.kill(owner.pid, signal.SIGCONT)
    sys.stdout.write(f"stopped owner: {answer.value}\n")
    owner.drop(key)


def main(folder: str) -> None:
    """Check all laws, take everything down, and say so."""
    laws = load_laws()
    with Listener(f"{folder}/orders") as listener:
        owners = [Remote(listener.accept()) for _ in range(OWNERS)]
    memory = MemoryTier(CAPACITY, job="test-peers")
    peers = MpiPeers(split_world(0, 0), memory.memory, timeout=TIMEOUT)
    find_groups(laws, peers, owners)
    check_own_block(laws, peers, memory)
    laws.check_peers(laws.Line(peers, owners[0].group, owners[0]))
    check_stopped_owner(laws, peers, owners[1])
    for owner in owners:
        owner.end()
    peers.close()
    memory.close()
    assert [owner.threads() for owner in owners] == [1] * OWNERS
    sys.stdout.write("all laws hold\n")


if __name__ == "__main__":
    main(sys.argv[1])
