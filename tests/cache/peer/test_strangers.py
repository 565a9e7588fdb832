"""Strangers at a peer's port: whatever they send, memory stays where it is, peers are served, and the end is clean."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.support import processes
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.peer import acceptor
from voxload.cache.peer.address import job_token
from voxload.cache.peer.channel import CHALLENGE, MAGIC, NONCE, PROOF, client_proof, server_proof
from voxload.cache.peer.client import TcpPeers
from voxload.cache.peer.server import PeerServer
from voxload.cache.peer.shelf import Shelf
from voxload.cache.peer.tls import Tls
from voxload.cache.protocol import Answer, BlockKey

ROOM = 2**25
"""Bytes that a server may take for all strangers together; one message alone is of more."""
FLOOD = 2**27
CROWD = 300

Place = tuple[str, int]


def _knock(place: Place) -> socket.socket:
    return socket.create_connection(place, timeout=processes.LIMIT)


def _flood(line: socket.socket, start: bytes = b"") -> None:
    """Send and send, until the other end has had enough."""
    piece = bytes(2**20)
    with suppress(OSError):
        line.sendall(start)
        for _ in range(FLOOD // len(piece)):
            line.sendall(piece)


def _wrong_token(place: Place) -> None:
    with _knock(place) as line:
        challenge = line.recv(CHALLENGE, socket.MSG_WAITALL)[len(MAGIC) :]
        line.sendall(MAGIC + bytes(NONCE) + client_proof(job_token(), challenge, bytes(NONCE)))
        assert line.recv(1) == b""


def _no_token(place: Place) -> None:
    with _knock(place) as line:
        line.recv(CHALLENGE, socket.MSG_WAITALL)
        line.sendall(MAGIC + bytes(NONCE + PROOF))
        assert line.recv(1) == b""


def _reflected(place: Place) -> None:
    """Have a server answer its own challenge: its words are not those of a client."""
    with _knock(place) as line:
        challenge = line.recv(CHALLENGE, socket.MSG_WAITALL)[len(MAGIC) :]
        line.sendall(MAGIC + challenge + server_proof(bytes(32), challenge, challenge))
        assert line.recv(1) == b""


def _flood_in_its_language(place: Place) -> None:
    with _knock(place) as line:
        _flood(line, MAGIC)


def _flood_of_grpc(place: Place) -> None:
    """Begin as HTTP/2 does, with a ticket or metadata for Arrow Flight, and do not end."""
    with _knock(place) as line:
        _flood(line, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


def _noise(place: Place) -> None:
    random = Random(7)
    for _ in range(30):
        with _knock(place) as line, suppress(OSError):
            line.sendall(random.randbytes(random.randrange(1, 2**12)))


def _encrypted(place: Place) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with _knock(place) as line, pytest.raises(OSError, match=r"."):
        context.wrap_socket(line, server_hostname=place[0])


def _gone_at_once(place: Place) -> None:
    for _ in range(CROWD):
        _knock(place).close()


ATTACKS: dict[str, Callable[[Place], None]] = {
    "no token": _no_token,
    "wrong token": _wrong_token,
    "its own words": _reflected,
    "flood": _flood_in_its_language,
    "gRPC": _flood_of_grpc,
    "noise": _noise,
    "TLS": _encrypted,
    "gone at once": _gone_at_once,
}


def _place(location: str) -> Place:
    host, _, port = location.partition("://")[2].rpartition(":")
    return host, int(port)


def _most_memory(pid: int) -> int:
    """Return the most bytes that a process ever had in memory."""
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) * 1024


@contextmanager
def _slow_crowd(place: Place) -> Iterator[None]:
    """Be many who hang about, with a byte now and then."""
    with ExitStack() as stack:
        for _ in range(CROWD):
            line = stack.enter_context(_knock(place))
            with suppress(OSError):  # sent away: others came after it
                line.sendall(MAGIC[:1])
        yield


def _is_served(owner: Any, peer_laws: ModuleType, block: Any, key: BlockKey) -> bool:
    with closing(TcpPeers({0: owner.location}, token=owner.token)) as peers:
        answer, out = peer_laws.Line(peers, 0, owner).get(key, block)
        return answer is Answer.GOT and peer_laws.same_bits(out, block)


@pytest.mark.long
def test_strangers_at_the_port(doomed_owner: Any, peer_laws: ModuleType) -> None:
    """Every attack on one server: its memory does not grow, peers get their blocks meanwhile, and it ends by itself."""
    owner, block = doomed_owner, peer_laws.random_block((1, 30, 30, 30))
    key, place = peer_laws.fresh_key(block.shape), _place(doomed_owner.location)
    owner.put(key, block)
    assert _is_served(owner, peer_laws, block, key)
    before = _most_memory(owner.process.pid)
    with _slow_crowd(place):
        for name, attack in ATTACKS.items():
            failed: list[BaseException] = []

            def act(attack: Callable[[Place], None] = attack, failed: list[BaseException] = failed) -> None:
                try:
                    attack(place)
                except BaseException as error:  # noqa: BLE001 - told below
                    failed.append(error)

            thread = threading.Thread(target=act)
            thread.start()
            assert _is_served(owner, peer_laws, block, key), name
            thread.join()
            assert not failed, (name, failed)
        assert _is_served(owner, peer_laws, block, key)
        assert _most_memory(owner.process.pid) - before < ROOM
        assert owner.close() == 1  # thread, of all that it ever had


def test_a_peer_that_asks_for_too_much(memory: MemoryTier, peer_laws: ModuleType) -> None:
    """With the token too: a request beyond 64 KiB, or of anything else, ends its own connection and no other."""
    block = peer_laws.random_block((1, 4, 4, 4))
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token = job_token()
    with (
        closing(PeerServer(Shelf([memory]), token=token)) as lender,
        closing(TcpPeers({0: lender.location}, token=token)) as peers,
    ):
        for said in (b"\xff\xff\xff\xff", b"\1\0\1\0", b"\2\0\0\0{}", b"\0\0\0\0", b"\0\0\1\0" + b"[" * 2**16):
            with _knock(_place(lender.location)) as line:
                challenge = line.recv(CHALLENGE, socket.MSG_WAITALL)[len(MAGIC) :]
                line.sendall(MAGIC + bytes(NONCE) + client_proof(token, challenge, bytes(NONCE)))
                assert line.recv(PROOF, socket.MSG_WAITALL) == server_proof(token, challenge, bytes(NONCE))
                line.sendall(said)
                with suppress(ConnectionResetError):  # so, where it was sent more than it read
                    assert line.recv(1) == b""
        assert peers.get_into(0, key, np.empty_like(block), wait=0) is Answer.GOT


def test_strangers_that_never_say_a_word(memory: MemoryTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is sent away after a while."""
    monkeypatch.setattr(acceptor, "GREETING", 0.01)
    with closing(PeerServer(Shelf([memory]), token=job_token())) as lender, _knock(_place(lender.location)) as line:
        line.recv(CHALLENGE, socket.MSG_WAITALL)
        assert line.recv(1) == b""


@pytest.mark.parametrize("mutual", [False, True])
def test_strangers_at_a_port_with_tls(
    memory: MemoryTier, certificates: Tls, peer_laws: ModuleType, *, mutual: bool
) -> None:
    """In the clear, with noise, without a certificate, or with one of another root: no stranger gets through."""
    tls = replace(certificates, mutual=mutual)
    block = peer_laws.random_block((1, 4, 4, 4))
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token = job_token()
    with (
        closing(PeerServer(Shelf([memory]), token=token, tls=tls)) as lender,
        closing(TcpPeers({0: lender.location}, token=token, tls=tls)) as peers,
        _slow_crowd(_place(lender.location)),
    ):
        place = _place(lender.location)
        for attack in (_flood_in_its_language, _flood_of_grpc, _noise, _gone_at_once):
            attack(place)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with _knock(place) as line, suppress(OSError), context.wrap_socket(line) as talk:
            _flood(talk, MAGIC + bytes(NONCE + PROOF))
        assert peers.get_into(0, key, np.empty_like(block), wait=0) is Answer.GOT


@pytest.mark.parametrize("said", [b"", b"v", bytes(100), MAGIC + bytes(NONCE), MAGIC + bytes(NONCE + PROOF) * 10**5])
def test_a_server_that_is_none(peer_laws: ModuleType, said: bytes) -> None:
    """One that says nothing, noise, or that cannot show that it knows the token gives no block, and is LOST in time."""
    like = peer_laws.random_block((1, 4, 4, 4))
    out = np.zeros_like(like)
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:

        def answer() -> None:
            line, _ = listener.accept()
            stack.enter_context(line)
            with suppress(OSError):
                line.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        location = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        with closing(TcpPeers({0: location}, token=job_token(), timeout=0.2)) as peers:
            assert peers.get_into(0, peer_laws.fresh_key(like.shape), out, wait=0) is Answer.LOST
        thread.join()
    assert not out.any()
