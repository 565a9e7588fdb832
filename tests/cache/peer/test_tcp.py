"""Blocks over TCP: the laws of peers with real server processes, the token, TLS, and owners that fail."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.support import processes
from voxload.cache.block import BlockKey
from voxload.cache.memory import MemoryTier
from voxload.cache.peer import doorkeeper, framing, server
from voxload.cache.peer.address import job_token
from voxload.cache.peer.client import TcpPeers
from voxload.cache.peer.lending import LendingBuffers
from voxload.cache.peer.node import NodePeers
from voxload.cache.peer.protocol import Answer
from voxload.cache.peer.request import Request
from voxload.cache.peer.server import PeerServer
from voxload.cache.peer.shelf import Shelf
from voxload.cache.peer.tls import Tls
from voxload.errors import NotFoundError, StorageError, UsageError
from voxload.readers.scratch import Bytes

TIMEOUT = 0.5


def test_laws(owner: Any, peer_laws: ModuleType) -> None:
    """TCP keeps the laws of peers."""
    with closing(TcpPeers({3: owner.location}, token=owner.token, timeout=10.0)) as peers:
        peer_laws.check_peers(peer_laws.Line(peers, 3, owner))


def test_stopped_owner(owner: Any, peer_laws: ModuleType) -> None:
    """An owner that hangs is LOST in time; when it goes on, nothing comes late, and it can be asked again."""
    with closing(TcpPeers({0: owner.location}, token=owner.token, timeout=TIMEOUT)) as peers:
        line = peer_laws.Line(peers, 0, owner)
        block = peer_laws.random_block((2, 60, 60, 60))
        key = peer_laws.fresh_key(block.shape)
        owner.put(key, block)
        peer_laws.check_nothing_written_later(
            line,
            key=key,
            like=block,
            hold=lambda: owner.signal(signal.SIGSTOP),
            release=lambda: owner.signal(signal.SIGCONT),
        )
        owner.signal(signal.SIGSTOP)
        peer_laws.check_lost(line, TIMEOUT)
        owner.signal(signal.SIGCONT)
        owner.drop(key)


def test_killed_owner(doomed_owner: Any, peer_laws: ModuleType) -> None:
    """An owner that is killed is LOST, to who waits at that moment too; on its node its memory can still be read."""
    owner = doomed_owner
    with (
        closing(TcpPeers({0: owner.location}, token=owner.token, timeout=TIMEOUT)) as peers,
        closing(NodePeers({0: owner.arena})) as node,
    ):
        line = peer_laws.Line(peers, 0, owner)
        block = peer_laws.random_block((1, 8, 8, 8))
        key = peer_laws.fresh_key(block.shape)
        owner.put(key, block)
        assert line.get(key, block)[0] is Answer.GOT
        killer = threading.Timer(0.1, owner.kill)
        killer.start()
        begin = time.monotonic()
        assert line.get(peer_laws.fresh_key(block.shape), block, wait=30.0)[0] is Answer.LOST
        assert time.monotonic() - begin < peer_laws.SLACK
        killer.join()
        peer_laws.check_lost(line, TIMEOUT)
        answer, out = peer_laws.Line(node, 0, owner).get(key, block)
        assert answer is Answer.GOT
        assert peer_laws.same_bits(out, block)


Pieces = list[tuple[Bytes, bytes]]


def _damaged(pieces: Pieces) -> Pieces:
    return [pieces[0], (np.zeros(2**20, np.uint8), pieces[1][1]), *pieces[2:]]


FAULTS: dict[str, Callable[[Pieces], Pieces]] = {
    "none": lambda pieces: pieces,
    "damaged": _damaged,
    "swapped": lambda pieces: [pieces[1], pieces[0], *pieces[2:]],
    "short": lambda pieces: pieces[:-1],
    "long": lambda pieces: [*pieces, pieces[-1]],
    "unsummed": lambda pieces: [(piece, bytes(4)) for piece, _ in pieces],
}
"""What a server may do wrong with the pieces of a block."""


class _Faulty:
    """What a server cuts blocks by that does wrong what `how` names."""

    def __init__(self, how: str) -> None:
        self._how = how
        self.go_on = threading.Event()

    def __call__(self, key: BlockKey, block: Bytes) -> Iterator[tuple[Bytes, bytes]]:
        if self._how == "other block":
            key = BlockKey(key.data, "another sample", key.field, key.box, key.boundary)
        pieces = FAULTS.get(self._how, FAULTS["none"])(list(framing.pieces(key, block)))
        yield pieces[0]
        if self._how == "hangs":
            self.go_on.wait(processes.LIMIT)
        if self._how == "breaks":
            raise RuntimeError("broken")
        yield from pieces[1:]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("none", Answer.GOT),
        ("damaged", Answer.WRONG),
        ("swapped", Answer.WRONG),
        ("short", Answer.LOST),
        ("long", Answer.GOT),
        ("other block", Answer.WRONG),
        ("unsummed", Answer.WRONG),
        ("hangs", Answer.LOST),
        ("breaks", Answer.LOST),
    ],
)
def test_faulty_server(
    memory: MemoryTier, monkeypatch: pytest.MonkeyPatch, peer_laws: ModuleType, how: str, expected: Answer
) -> None:
    """What comes damaged, in another order, short, or not at all does not pass, and nothing comes after the answer."""
    faulty = _Faulty(how)
    monkeypatch.setattr(server, "pieces", faulty)
    block = peer_laws.random_block((3, 2**10, 2**10), "u1")
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token = job_token()
    with (
        _warned_of(how),
        closing(PeerServer(Shelf([memory]), token=token)) as lender,
        closing(TcpPeers({0: lender.location}, token=token, timeout=TIMEOUT)) as peers,
    ):
        out = np.zeros_like(block)
        assert peers.get_into(0, key, out, wait=0) is expected
        left = out.copy()
        faulty.go_on.set()
        # What came too much is never taken for the answer to the next call.
        again = peers.get_into(0, peer_laws.fresh_key(block.shape), np.zeros_like(block), wait=0)
        assert again is Answer.ABSENT or (how == "long" and again is Answer.LOST)
        assert (out == left).all()
        assert expected is not Answer.GOT or (out == block).all()


def _warned_of(how: str) -> AbstractContextManager[Any]:
    return pytest.warns(RuntimeWarning, match="RuntimeError: broken") if how == "breaks" else nullcontext()


def test_a_server_without_the_token_is_no_peer(memory: MemoryTier, peer_laws: ModuleType) -> None:
    """Neither end believes the other without it; right ones are served meanwhile."""
    block = peer_laws.random_block((1, 4, 4, 4))
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token = job_token()
    with closing(PeerServer(Shelf([memory]), token=token)) as lender:
        for shown, expected in ((token, Answer.GOT), (job_token(), Answer.LOST), (token, Answer.GOT)):
            with closing(TcpPeers({0: lender.location}, token=shown)) as peers:
                assert peers.get_into(0, key, np.empty_like(block), wait=0) is expected


def test_connections_that_were_closed_meanwhile(
    memory: MemoryTier, monkeypatch: pytest.MonkeyPatch, peer_laws: ModuleType
) -> None:
    """A server keeps so many idle connections and no more; whose was closed asks over another one."""
    monkeypatch.setattr(doorkeeper, "PEERS", 2)
    block = peer_laws.random_block((1, 4, 4, 4))
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token = job_token()
    with closing(PeerServer(Shelf([memory]), token=token)) as lender, ExitStack() as stack:
        clients = [stack.enter_context(closing(TcpPeers({0: lender.location}, token=token))) for _ in range(5)]
        for _ in range(3):
            for peers in clients:
                assert peers.get_into(0, key, np.empty_like(block), wait=0) is Answer.GOT


@pytest.mark.parametrize(("name", "mutual"), [("", False), ("job.invalid", True)])
def test_tls(memory: MemoryTier, certificates: Tls, peer_laws: ModuleType, name: str, *, mutual: bool) -> None:
    """With certificates blocks come encrypted, by address or by the job's name; plain and distrusting clients fail.

    Where both ends show certificates, a client without one fails too.
    """
    tls = replace(certificates, name=name, mutual=mutual)
    block = peer_laws.random_block((2, 50, 60, 70))
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token = job_token()
    with closing(PeerServer(Shelf([memory]), token=token, tls=tls)) as lender:
        assert lender.location.startswith("tls://127.0.0.1:")
        plain = lender.location.replace("tls", "tcp")
        stranger, bare = replace(tls, name="stranger.invalid"), replace(tls, mutual=False)
        for location, words, expected in (
            (lender.location, tls, Answer.GOT),
            (plain, None, Answer.LOST),
            (lender.location, None, Answer.LOST),
            (lender.location, stranger, Answer.LOST),
            (lender.location, bare, Answer.LOST if mutual else Answer.GOT),
        ):
            with closing(TcpPeers({0: location}, token=token, timeout=TIMEOUT, tls=words)) as peers:
                out = np.zeros_like(block)
                assert peers.get_into(0, key, out, wait=0) is expected
                assert (out == block).all() == (expected is Answer.GOT)


def test_tls_files_that_are_not_there(memory: MemoryTier, certificates: Tls, tmp_path: Path) -> None:
    """A missing or broken file is named."""
    missing = Tls(tmp_path / "none.pem", certificates.key, tmp_path / "none.pem")
    with pytest.raises(NotFoundError, match=r"none\.pem"):
        PeerServer(Shelf([memory]), token=job_token(), tls=missing)
    with pytest.raises(NotFoundError, match=r"none\.pem"):
        TcpPeers({}, token=job_token(), tls=missing)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "localhost", ""])  # noqa: S104 - refused
def test_hosts_that_are_refused(memory: MemoryTier, host: str) -> None:
    """A server listens at one address, never at all of them."""
    with pytest.raises(UsageError, match="host"):
        PeerServer(Shelf([memory]), token=job_token(), host=host)


def test_what_else_is_refused(memory: MemoryTier, peer_laws: ModuleType) -> None:
    """Short tokens, strange addresses, unknown groups and time-outs that never end are errors."""
    with pytest.raises(UsageError, match="token"):
        PeerServer(Shelf([memory]), token=b"short")
    with pytest.raises(StorageError, match=r"192\.0\.2\.1"):
        PeerServer(Shelf([memory]), token=job_token(), host="192.0.2.1")
    with pytest.raises(UsageError, match="timeout"):
        TcpPeers({}, token=job_token(), timeout=float("inf"))
    block = peer_laws.random_block((1, 2, 2, 2))
    with closing(TcpPeers({}, token=job_token())) as peers, pytest.raises(UsageError, match="group"):
        peers.get_into(0, peer_laws.fresh_key(block.shape), block, wait=0)


def test_closing_sends_away_who_waits(memory: MemoryTier, peer_laws: ModuleType) -> None:
    """A server that closes does not wait for those who wait for a block."""
    token = job_token()
    lender = PeerServer(Shelf([memory]), token=token)
    like = peer_laws.random_block((1, 4, 4, 4))
    key = peer_laws.fresh_key(like.shape)
    found: list[Answer] = []
    with closing(TcpPeers({0: lender.location}, token=token, timeout=30.0)) as peers:
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
                framing.send_request(channel, waiting, deadline)
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
            framing.send_request(channel, Request(missing, block.dtype, block.shape, 1e9), deadline)
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
    buffers = LendingBuffers(1000)
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
