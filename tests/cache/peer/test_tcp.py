"""Blocks over TCP: the laws of peers with real server processes, the token, TLS, and owners that fail."""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.support import processes
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.peer import acceptor, messages, server
from voxload.cache.peer.address import job_token
from voxload.cache.peer.channel import Channel
from voxload.cache.peer.client import TcpPeers
from voxload.cache.peer.messages import Request, receive_head, send_request
from voxload.cache.peer.node import NodePeers
from voxload.cache.peer.server import PeerServer
from voxload.cache.peer.shelf import Shelf
from voxload.cache.peer.tls import Tls
from voxload.cache.protocol import Answer, BlockKey
from voxload.errors import NotFoundError, StorageError, UsageError
from voxload.readers.scratch import Bytes

TIMEOUT = 0.5
"""Seconds after which an owner that hangs is LOST."""
PATIENT = processes.LIMIT
"""Seconds that an answer may take which has to come, on a machine that is busy."""


def test_laws(owner: Any, peer_laws: ModuleType) -> None:
    """TCP keeps the laws of peers."""
    with closing(TcpPeers({3: owner.location}, token=owner.token, timeout=PATIENT)) as peers:
        peer_laws.check_peers(peer_laws.Line(peers, 3, owner))


@pytest.mark.long
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


@pytest.mark.long
def test_killed_owner(doomed_owner: Any, peer_laws: ModuleType) -> None:
    """An owner that is killed is LOST, to who waits at that moment too; on its node its memory can still be read."""
    owner = doomed_owner
    with (
        closing(TcpPeers({0: owner.location}, token=owner.token, timeout=PATIENT)) as peers,
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
        pieces = FAULTS.get(self._how, FAULTS["none"])(list(messages.pieces(key, block)))
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
    # Who breaks hangs up: it is not for the client to lose patience before it has been asked.
    token, timeout = job_token(), TIMEOUT if how in ("short", "hangs") else PATIENT
    with (
        _warned_of(how),
        closing(PeerServer(Shelf([memory]), token=token)) as lender,
        closing(TcpPeers({0: lender.location}, token=token, timeout=timeout)) as peers,
    ):
        out = np.zeros_like(block)
        assert peers.get_into(0, key, out, wait=0) is expected
        left = out.copy()
        faulty.go_on.set()
        # What came too much is never taken for the answer to the next call.
        again = peers.get_into(0, peer_laws.fresh_key(block.shape), np.zeros_like(block), wait=0)
        while timeout == TIMEOUT and again is Answer.LOST:  # so short a time-out may end on a busy machine, too
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
    monkeypatch.setattr(acceptor, "PEERS", 2)
    block = peer_laws.random_block((1, 4, 4, 4))
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token = job_token()
    with closing(PeerServer(Shelf([memory]), token=token)) as lender, ExitStack() as stack:
        clients = [stack.enter_context(closing(TcpPeers({0: lender.location}, token=token))) for _ in range(5)]
        for _ in range(3):
            for peers in clients:
                assert peers.get_into(0, key, np.empty_like(block), wait=0) is Answer.GOT


def test_who_has_not_asked_yet_is_not_sent_away(
    memory: MemoryTier, monkeypatch: pytest.MonkeyPatch, peer_laws: ModuleType
) -> None:
    """Its request may be on the way, and no other connection is tried for one that was fresh."""
    monkeypatch.setattr(acceptor, "PEERS", 2)
    block = peer_laws.random_block((1, 4, 4, 4))
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token, until = job_token(), time.monotonic() + processes.LIMIT
    with closing(PeerServer(Shelf([memory]), token=token)) as lender, ExitStack() as stack:
        late, *others = (stack.enter_context(closing(TcpPeers({0: lender.location}, token=token))) for _ in range(4))
        with closing(late._connect(0, until)) as fresh:
            for peers in others:
                assert peers.get_into(0, key, np.empty_like(block), wait=0) is Answer.GOT
            send_request(fresh, Request(key, block.dtype, block.shape, 0), until)
            assert receive_head(fresh, until)[0] is Answer.GOT


def test_who_comes_back_makes_no_room_among_those_who_have_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only fresh ones are left, the one that was served goes: it may come again."""
    monkeypatch.setattr(acceptor, "PEERS", 2)
    token, until = job_token(), time.monotonic() + processes.LIMIT
    asked = SimpleQueue[Channel]()
    listener = socket.create_server(("127.0.0.1", 0))
    location = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    with (
        closing(TcpPeers({0: location}, token=token)) as peers,
        ExitStack() as stack,
        closing(acceptor.Acceptor(listener, token, None, asked.put)) as door,
    ):
        served = stack.enter_context(closing(peers._connect(0, until)))
        served.write(b"a request", until)
        theirs = asked.get(timeout=processes.LIMIT)
        fresh = [stack.enter_context(closing(peers._connect(0, until))) for _ in range(2)]
        door.welcome(theirs)
        assert select.select([served, *fresh], [], [], processes.LIMIT)[0] == [served]


@pytest.mark.few_cases(2)
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
            timeout = TIMEOUT if expected is Answer.LOST else PATIENT
            with closing(TcpPeers({0: location}, token=token, timeout=timeout, tls=words)) as peers:
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
