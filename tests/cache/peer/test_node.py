"""Blocks of ranks of one node: the laws of peers, and which of two ways a block comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from voxload.cache.memory.tier import MemoryTier
from voxload.cache.peer.address import PeerAddress, host_identity
from voxload.cache.peer.node import LinePeers, NodePeers, near_arenas
from voxload.cache.protocol import Answer, BlockKey
from voxload.errors import UsageError
from voxload.readers.protocol import Volume


@pytest.fixture
def tiers() -> Iterator[tuple[MemoryTier, MemoryTier]]:
    """Yield two memory tiers of this process."""
    with (
        closing(MemoryTier(2**22, job="test-peers")) as first,
        closing(MemoryTier(2**22, job="test-peers")) as second,
    ):
        yield first, second


class _Far:
    """A transport that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.is_closed = False

    def get_into(self, group: int, key: BlockKey, out: Volume, *, wait: float) -> Answer:  # noqa: ARG002 - the contract
        self.asked.append(group)
        return Answer.ABSENT

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.long
def test_laws(owner: Any, peer_laws: ModuleType) -> None:
    """Ranks of one node keep the laws of peers."""
    with closing(NodePeers({5: owner.arena})) as peers:
        peer_laws.check_peers(peer_laws.Line(peers, 5, owner))


def test_near_and_far(tiers: tuple[MemoryTier, MemoryTier], peer_laws: ModuleType) -> None:
    """Groups of this node are read in place, all others are asked for over the transport, and both are closed."""
    mine, other = tiers
    block = peer_laws.random_block((1, 4, 4, 4))
    key = peer_laws.fresh_key(block.shape)
    other.put(key, block)
    here = host_identity()
    addresses = {
        0: PeerAddress(here, arena=mine.path),
        1: PeerAddress(here, arena=other.path),
        2: PeerAddress("elsewhere", arena=other.path),
        3: PeerAddress(here),
    }
    near = NodePeers(near_arenas(addresses, here))
    assert near.groups == {0, 1}
    far = _Far()
    out = np.zeros_like(block)
    with closing(LinePeers(near, far)) as peers:
        assert peers.get_into(1, key, out, wait=0) is Answer.GOT
        assert (out == block).all()
        assert peers.get_into(0, key, out, wait=0) is Answer.ABSENT
        assert not far.asked
        assert peers.get_into(2, key, out, wait=0) is Answer.ABSENT
        assert peers.get_into(3, key, out, wait=0) is Answer.ABSENT
        assert far.asked == [2, 3]
    assert far.is_closed
    with closing(LinePeers(NodePeers({}), None)) as alone:
        assert alone.get_into(2, key, out, wait=0) is Answer.LOST


def test_disks_of_the_node(tiers: tuple[MemoryTier, MemoryTier], peer_laws: ModuleType) -> None:
    """What a rank has on a disk that both can read comes from there, unless its memory has it whole."""
    memory, disk = tiers
    block = peer_laws.random_block((1, 12, 12, 12))
    key = peer_laws.fresh_key(block.shape)
    with closing(NodePeers({0: memory.path}, {0: disk})) as peers:
        line = peer_laws.Line(peers, 0, None)
        assert line.get(key, block)[0] is Answer.ABSENT
        disk.put(key, block)
        assert line.get(key, block)[0] is Answer.GOT
        assert line.get(key, block.view(np.uint16))[0] is Answer.WRONG
        memory.put(key, block)
        peer_laws.damage(memory.path, key)
        answer, out = line.get(key, block)
        assert answer is Answer.GOT
        assert peer_laws.same_bits(out, block)
        disk.drop(key)
        assert line.get(key, block)[0] is Answer.WRONG


@pytest.mark.usefixtures("no_leaks")
def test_memory_that_cannot_be_attached(tmp_path: Path, peer_laws: ModuleType) -> None:
    """What is not there, or is something else, is warned of and left to the transport."""
    (tmp_path / "else").write_bytes(b"something else" * 1000)
    with pytest.warns(RuntimeWarning, match="peers of this node: .*no such file"):
        peers = NodePeers({0: str(tmp_path / "none"), 1: str(tmp_path / "else")})
    assert peers.groups == frozenset()
    like = peer_laws.random_block((1, 2, 2, 2))
    with closing(peers), pytest.raises(UsageError, match="group"):
        peers.get_into(0, peer_laws.fresh_key(like.shape), like, wait=0)
