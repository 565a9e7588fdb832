"""A server that lends blocks over TCP closes at once, serves a crowd, and takes no more memory than it was given."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.support import processes
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.peer import messages, server
from voxload.cache.peer.address import job_token
from voxload.cache.peer.bufferpool import BufferPool
from voxload.cache.peer.client import TcpPeers
from voxload.cache.peer.messages import Request
from voxload.cache.peer.server import PeerServer
from voxload.cache.peer.shelf import Shelf
from voxload.cache.protocol import Answer


def test_closing_sends_away_who_waits(memory: MemoryTier, peer_laws: ModuleType) -> None:
    """A server that closes does not wait for those who wait for a block."""
    token = job_token()
    lender = PeerServer(Shelf([memory]), token=token)
    like = peer_laws.random_block((1, 4, 4, 4))
    key = peer_laws.fresh_key(like.shape)
    found: list[Answer] = []
    with closing(TcpPeers({0: lender.location}, token=token, timeout=processes.LIMIT)) as peers:
        peers.get_into(0, key, np.empty_like(like), wait=0)  # connects
        waiter = threading.Thread(target=lambda: found.append(peers.get_into(0, key, np.empty_like(like), wait=60.0)))
        waiter.start()
        begin = time.monotonic()
        lender.close()
        waiter.join(peer_laws.SLACK)
    assert found
    assert found[0] in {Answer.ABSENT, Answer.LOST}
    assert time.monotonic() - begin < peer_laws.SLACK


def test_closing_with_a_client_that_hangs(memory: MemoryTier, peer_laws: ModuleType) -> None:
    """A client that takes no more of a block does not hold a closing server up."""
    block = peer_laws.random_block((12, 2**10, 2**10), "u1")
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token = job_token()
    lender = PeerServer(Shelf([memory]), token=token)
    with closing(TcpPeers({0: lender.location}, token=token)) as peers:
        deadline = time.monotonic() + processes.LIMIT
        request = Request(key, block.dtype, block.shape, 0.0)
        channel, (answer, nbytes) = peers._begin(0, request, deadline)
        with closing(channel):
            assert (answer, nbytes) == (Answer.GOT, block.nbytes)
            channel.read(2**20, deadline)
            lender.close()
            lender.close()  # does nothing


def test_a_client_that_goes_away(memory: MemoryTier, peer_laws: ModuleType) -> None:
    """A call that nobody waits for any more holds neither its thread nor its buffer: the next one has all of them."""
    block = peer_laws.random_block((4, 2**10, 2**10), "u1")
    key = peer_laws.fresh_key(block.shape)
    token, deadline = job_token(), time.monotonic() + processes.LIMIT
    with (
        closing(PeerServer(Shelf([memory]), token=token, lent=block.nbytes)) as lender,
        closing(TcpPeers({0: lender.location}, token=token)) as peers,
    ):
        waiting = Request(key, block.dtype, block.shape, 60.0)
        for _ in range(server.WAITERS + 1):
            with closing(peers._connect(0, deadline)) as channel:
                messages.send_request(channel, waiting, deadline)
        while lender._served:
            time.sleep(0.01)
        assert lender._waiting == 0
        memory.put(key, block)
        channel, (answer, _) = peers._begin(0, waiting, deadline)
        with closing(channel):
            assert answer is Answer.GOT
            channel.read(10, deadline)
        assert peers.get_into(0, key, np.empty_like(block), wait=0) is Answer.GOT


def test_a_crowd_that_waits(memory: MemoryTier, monkeypatch: pytest.MonkeyPatch, peer_laws: ModuleType) -> None:
    """Who waits for blocks to come takes the place of nobody who asks for one that is there."""
    monkeypatch.setattr(server, "CALLS", 3)
    monkeypatch.setattr(server, "WAITERS", 2)
    block = peer_laws.random_block((1, 4, 4, 4))
    key, missing = peer_laws.fresh_key(block.shape), peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token, deadline = job_token(), time.monotonic() + processes.LIMIT
    with (
        closing(PeerServer(Shelf([memory]), token=token)) as lender,
        closing(TcpPeers({0: lender.location}, token=token)) as peers,
        ExitStack() as stack,
    ):
        for _ in range(2):
            channel = stack.enter_context(closing(peers._connect(0, deadline)))
            messages.send_request(channel, Request(missing, block.dtype, block.shape, 1e9), deadline)
        while lender._waiting < 2:
            time.sleep(0.01)
        assert peers.get_into(0, missing, np.empty_like(block), wait=1e6) is Answer.ABSENT  # at once
        assert peers.get_into(0, key, np.empty_like(block), wait=0) is Answer.GOT


@pytest.mark.usefixtures("no_leaks")
def test_nothing_is_left(memory: MemoryTier, peer_laws: ModuleType) -> None:
    """Servers and clients that come and go leave no descriptor and no thread of the system behind."""
    block = peer_laws.random_block((1, 8, 8, 8))
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)

    def once() -> None:
        token = job_token()
        with (
            closing(PeerServer(Shelf([memory]), token=token)) as lender,
            closing(TcpPeers({0: lender.location}, token=token)) as peers,
        ):
            assert peers.get_into(0, key, np.empty_like(block), wait=0) is Answer.GOT

    def left() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir()))

    for _ in range(3):
        once()
    before = left()
    for _ in range(5):
        once()
    deadline = time.monotonic() + processes.LIMIT  # the kernel takes a moment to end threads
    while any(now > then for now, then in zip(left(), before, strict=True)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(now <= then for now, then in zip(left(), before, strict=True)), (before, left())


def test_a_block_beyond_what_may_be_lent(memory: MemoryTier, peer_laws: ModuleType) -> None:
    """A server never takes more memory than it was given: a larger block is ABSENT, and that is said once."""
    block = peer_laws.random_block((1, 32, 32, 32))
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token = job_token()
    with (
        closing(PeerServer(Shelf([memory]), token=token, lent=block.nbytes - 1)) as lender,
        closing(TcpPeers({0: lender.location}, token=token)) as peers,
    ):
        with pytest.warns(RuntimeWarning, match="at most 65535 are lent"):
            assert peers.get_into(0, key, np.empty_like(block), wait=0) is Answer.ABSENT
        assert peers.get_into(0, key, np.empty_like(block), wait=0) is Answer.ABSENT


def test_lending_buffers() -> None:
    """Buffers come back with the last reference, are used again, and never exceed the limit."""
    buffers = BufferPool(1000)
    first = buffers.take(600, patience=0)
    assert first is not None
    where, exported = first.__array_interface__["data"], first.data
    assert buffers.take(401, patience=0) is None
    assert buffers.take(1001, patience=60) is None
    small = buffers.take(400, patience=0)
    assert small is not None
    del first
    assert buffers.take(1, patience=0) is None
    piece = exported[5:10]
    del exported
    assert buffers.take(1, patience=0) is None
    del piece
    again = buffers.take(500, patience=0)
    assert again is not None
    assert len(again) == 500
    assert again.__array_interface__["data"] == where
    del again, small
    whole = buffers.take(1000, patience=0)
    assert whole is not None
    threading.Timer(0.05, lambda held: held.clear(), [[whole]]).start()
    del whole
    assert buffers.take(1000, patience=10) is not None
