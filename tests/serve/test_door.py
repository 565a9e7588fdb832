"""Door: who is let in, and who is sent away, by real processes that say, or do not say, anything at all."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import Signals
from typing import Any

import pytest

from tests.serve.conftest import Service, Start, until
from tests.support import processes
from voxload.serve.protocol.packets import LONGEST, PacketSocket
from voxload.serve.reception import STRANGERS

pytestmark = pytest.mark.usefixtures("no_leaks")
HELLO: dict[str, Any] = {"kind": "hello", "first": 1, "last": 1, "build": "test", "name": "a job"}


@contextmanager
def _client(path: Path) -> Iterator[PacketSocket]:
    packets = PacketSocket.connect(os.fspath(path), processes.LIMIT)
    try:
        yield packets
    finally:
        packets.close()


def _ask(packets: PacketSocket, **words: Any) -> dict[str, Any]:
    """Send a message and return the answer; empty where the connection ended."""
    packets.send(words)
    packet = packets.receive()
    return {} if packet is None else dict(packet.words)


def _renewal(welcome: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "renew", **{name: welcome[name] for name in ("boot", "session", "generation")}}


def test_who_says_hello_has_a_session(service: Service) -> None:
    """With what the kernel says of it, until it says goodbye or hangs up."""
    with _client(service.path) as packets, _client(service.path) as other:
        welcome = _ask(packets, **HELLO)
        assert (welcome["kind"], welcome["version"], welcome["session"], welcome["lease"]) == ("welcome", 1, 1, 600.0)
        (session,) = service.who()
        assert {name: session[name] for name in ("number", "uid", "pid", "name")} == {
            "number": 1,
            "uid": os.geteuid(),
            "pid": os.getpid(),
            "name": "a job",
        }
        assert _ask(other, **HELLO, features=["of later versions"], more=1)["session"] == 2
        renewed = _ask(packets, **_renewal(welcome))
        assert (renewed["kind"], renewed["session"], renewed["generation"]) == ("renewed", 1, 1)
        assert _ask(packets, kind="bye") == {}
        until(lambda: [one["number"] for one in service.who()] == [2])
    until(lambda: service.who() == [])
    assert service.end() == 0
    assert not service.path.exists()


CLIENT = """
import sys
from voxload.serve.protocol.packets import PacketSocket
packets = PacketSocket.connect(sys.argv[1], 60)
packets.send({"kind": "hello", "first": 1, "last": 1, "build": "test", "name": "killed"})
print(packets.receive().words["session"], flush=True)
sys.stdin.read()
"""


def test_a_killed_client_has_no_session(service: Service) -> None:
    """The kernel hangs up for it, at once."""
    command = [sys.executable, "-c", CLIENT, str(service.path)]
    with processes.started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline().strip() == "1"
        assert [one["pid"] for one in service.who()] == [client.pid]
        client.send_signal(Signals.SIGKILL)
        until(lambda: service.who() == [])


def test_a_lease_that_is_not_renewed_ends(start: Start) -> None:
    """And its client is told so."""
    service = start(lease=0.5)
    with _client(service.path) as packets:
        assert _ask(packets, **HELLO)["lease"] == 0.5
        last = packets.receive()
        assert last is not None
        assert last.words == {"kind": "refused", "reason": "the lease ended", "remedy": "begin another session"}
        assert packets.receive() is None
        assert service.who() == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "packet: found"),
        (b"\0" * LONGEST, "packet: found"),
        (b"{" + b" " * LONGEST + b"}", "packet: found a longer one"),
        (b'{"kind":"renew","boot":"","session":1,"generation":1}', "renew out of turn"),
        (b'{"kind":"welcome"}', "message: found 'welcome'"),
        (b'{"kind":"hello","first":2,"last":9,"build":"9"}', "speaks versions 1 to 1 of the protocol, the client"),
        (b'{"kind":"hello","first":1,"last":0,"build":"0"}', "speaks versions 1 to 1 of the protocol, the client"),
        (b'{"kind":"hello"}', "hello.first: found nothing"),
        (b'{"kind":"hello","first":"1","last":1,"build":""}', "hello.first: found '1'"),
    ],
)
def test_strangers_are_sent_away(service: Service, data: bytes, reason: str) -> None:
    """With the reason, and with none of the descriptors that they brought."""
    before = service.descriptors()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.settimeout(processes.LIMIT)
        stranger.connect(os.fspath(service.path))
        socket.send_fds(stranger, [data], [stranger.fileno()] * 3)
        packets = PacketSocket(stranger.dup())
        packet = packets.receive()
        assert packet is not None
        assert packet.words["kind"] == "refused"
        assert reason in packet.words["reason"]
        assert packets.receive() is None
        packets.close()
    assert service.descriptors() == before
    assert service.who() == []


def test_what_belongs_to_others_is_not_renewed(service: Service) -> None:
    """Neither another session, nor one of another service, nor one that was gone on with; and no second hello."""
    for change in ({"session": 2}, {"generation": 2}, {"boot": "0" * 32}):
        with _client(service.path) as packets, _client(service.path) as other:
            welcome = _ask(packets, **HELLO)
            assert _ask(other, **HELLO)["session"] == welcome["session"] + 1
            wrong = {**_renewal(welcome), **change}
            assert _ask(packets, **wrong)["reason"] == "the session has ended"
        until(lambda: service.who() == [])
    with _client(service.path) as packets:
        _ask(packets, **HELLO)
        assert _ask(packets, **HELLO)["reason"] == "hello out of turn"


def test_another_connection_goes_on_with_a_session(service: Service) -> None:
    """Who spoke for it before is sent away, and does not end it."""
    with _client(service.path) as first, _client(service.path) as second:
        welcome = _ask(first, **HELLO)
        words = {name: welcome[name] for name in ("boot", "session", "generation")}
        again = _ask(second, **HELLO, **words)
        assert (again["session"], again["generation"]) == (1, 2)
        assert first.receive() is None
        assert [(one["number"], one["generation"]) for one in service.who()] == [(1, 2)]
        assert _ask(second, **_renewal(again))["kind"] == "renewed"
        with _client(service.path) as late:
            assert _ask(late, **HELLO, **words)["session"] == 2


def test_a_crowd_of_strangers_keeps_nobody_out(service: Service) -> None:
    """Who says nothing makes room for who does, and takes no more than so many descriptors."""
    before = service.descriptors()
    with ExitStack() as stack:
        for _ in range(3 * STRANGERS):
            stranger = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            stranger.connect(os.fspath(service.path))
        packets = stack.enter_context(_client(service.path))
        assert _ask(packets, **HELLO)["kind"] == "welcome"
        assert service.descriptors() <= before + STRANGERS + 1
        assert len(service.who()) == 1
    until(lambda: service.descriptors() == before)


def test_two_hundred_clients(service: Service) -> None:
    """All are in, each for itself."""
    with ExitStack() as stack:
        clients = [stack.enter_context(_client(service.path)) for _ in range(100)]
        welcomes = [_ask(one, **HELLO) for one in clients]
        clients += [stack.enter_context(_client(service.path)) for _ in range(100)]
        welcomes += [_ask(one, **HELLO) for one in clients[100:]]
        assert sorted(one["session"] for one in welcomes) == list(range(1, 201))
        for client, welcome in zip(clients, welcomes, strict=True):
            assert _ask(client, **_renewal(welcome))["session"] == welcome["session"]
        assert len(service.who()) == 200
    until(lambda: service.who() == [])


def test_who_never_reads_is_sent_away(service: Service) -> None:
    """Its answers fill what the system keeps for it, and no more; the others are answered."""
    with _client(service.path) as packets, _client(service.path) as other:
        welcome, mine = _ask(packets, **HELLO), _ask(other, **HELLO)
        renewals = iter(lambda: packets.send(_renewal(welcome)), "never")
        with pytest.raises(OSError, match=r"pipe|reset"):
            deque(renewals, maxlen=0)
        assert _ask(other, **_renewal(mine))["kind"] == "renewed"
        until(lambda: [one["number"] for one in service.who()] == [2])


def test_a_socket_has_one_service(service: Service, start: Start) -> None:
    """A second one is told; once the first was killed, its socket is taken over."""
    assert stat.S_IMODE(service.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(service.path.parent.stat().st_mode) == 0o700
    second = start()
    assert second.said == f"{service.path}: found a service that listens there, expected none; stop it"
    service.send(Signals.SIGKILL)
    assert service.path.exists()
    third = start()
    assert third.said == "ready"
    with _client(third.path) as packets:
        assert _ask(packets, **HELLO)["session"] == 1


def test_places_that_cannot_be(start: Start, tmp_path: Path) -> None:
    """A path that no socket can have, a folder into which others may write, and a file, which stays."""
    long = tmp_path / ("x" * 120) / "socket"
    assert start(at=long).said == f"{long}: found {len(str(long))} bytes, expected at most 107, as sockets' paths are"
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert "expected a folder of this user's alone" in start(at=shared / "socket").said
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "own" / "file").write_text("mine")
    told = start(at=tmp_path / "own" / "file").said
    assert told.endswith("file: found something else, expected a socket, or nothing; name another")
    assert (tmp_path / "own" / "file").read_text() == "mine"
