"""Blocks over Arrow Flight: the laws of peers with real server processes, the token, TLS, and owners that fail."""

from __future__ import annotations

import datetime as dt
import ipaddress
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support import processes
from voxload.cache.block import BlockKey
from voxload.cache.memory import MemoryTier
from voxload.cache.peer import flight
from voxload.cache.peer.address import job_token
from voxload.cache.peer.flight import FlightPeers, FlightServer
from voxload.cache.peer.lending import LendingBuffers
from voxload.cache.peer.node import NodePeers
from voxload.cache.peer.protocol import Answer
from voxload.cache.peer.request import Request
from voxload.cache.peer.shelf import Shelf
from voxload.cache.peer.tls import Tls
from voxload.errors import NotFoundError, StorageError, UsageError
from voxload.readers.scratch import Bytes

TIMEOUT = 0.5


@pytest.fixture
def memory() -> Iterator[MemoryTier]:
    """Yield a memory tier of this process."""
    with closing(MemoryTier(2**24, job="test-peers")) as tier:
        yield tier


def test_laws(owner: Any, peer_laws: ModuleType) -> None:
    """Flight keeps the laws of peers."""
    with closing(FlightPeers({3: owner.location}, token=owner.token, timeout=10.0)) as peers:
        peer_laws.check_peers(peer_laws.Line(peers, 3, owner))


def test_stopped_owner(owner: Any, peer_laws: ModuleType) -> None:
    """An owner that hangs is LOST in time; when it goes on, nothing comes late, and it can be asked again."""
    with closing(FlightPeers({0: owner.location}, token=owner.token, timeout=TIMEOUT)) as peers:
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
        closing(FlightPeers({0: owner.location}, token=owner.token, timeout=TIMEOUT)) as peers,
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


Batches = list[tuple[Any, bytes]]


def _damaged(batches: Batches) -> Batches:
    zeros = pa.record_batch([np.zeros(2**20, np.uint8)], schema=batches[1][0].schema)
    return [batches[0], (zeros, batches[1][1]), *batches[2:]]


FAULTS: dict[str, Callable[[Batches], Batches]] = {
    "none": lambda batches: batches,
    "damaged": _damaged,
    "swapped": lambda batches: [batches[1], batches[0], *batches[2:]],
    "short": lambda batches: batches[:-1],
    "long": lambda batches: [*batches, batches[-1]],
    "unsummed": lambda batches: [(batch, b"") for batch, _ in batches],
}
"""What a server may do wrong with the batches of a block."""


class _Faulty(flight._Service):
    """A server that does wrong what `how` names."""

    how = ""
    go_on = threading.Event()

    def _batches(self, schema: Any, key: BlockKey, block: Bytes | None) -> Iterator[tuple[Any, bytes]]:
        if block is None:
            return
        if self.how == "other block":
            key = BlockKey(key.data, "another sample", key.field, key.box, key.boundary)
        batches = FAULTS.get(self.how, FAULTS["none"])(list(super()._batches(schema, key, block)))
        yield batches[0]
        if self.how == "hangs":
            self.go_on.wait(30)
        if self.how == "breaks":
            raise fl.FlightServerError("broken")
        yield from batches[1:]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("none", Answer.GOT),
        ("damaged", Answer.WRONG),
        ("swapped", Answer.WRONG),
        ("short", Answer.WRONG),
        ("long", Answer.WRONG),
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
    monkeypatch.setattr(flight, "_Service", _Faulty)
    monkeypatch.setattr(_Faulty, "how", how)
    monkeypatch.setattr(_Faulty, "go_on", threading.Event())
    block = peer_laws.random_block((3, 2**10, 2**10), "u1")
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token = job_token()
    with (
        closing(FlightServer(Shelf([memory]), token=token)) as server,
        closing(FlightPeers({0: server.location}, token=token, timeout=TIMEOUT)) as peers,
    ):
        out = np.zeros_like(block)
        assert peers.get_into(0, key, out, wait=0) is expected
        left = out.copy()
        _Faulty.go_on.set()
        assert peers.get_into(0, peer_laws.fresh_key(block.shape), np.zeros_like(block), wait=0) is Answer.ABSENT
        assert (out == left).all()
        assert expected is not Answer.GOT or (out == block).all()


@pytest.mark.parametrize("shown", [None, [], [b""], [b"Bearer "], ["wrong"], ["right", "right"]])
def test_without_the_token_nothing_is_told(
    memory: MemoryTier, peer_laws: ModuleType, shown: list[bytes | str] | None
) -> None:
    """A client without the token, or with a wrong one, hears the same whether the block is there or not."""
    block = peer_laws.random_block((1, 4, 4, 4))
    there, missing = peer_laws.fresh_key(block.shape), peer_laws.fresh_key(block.shape)
    memory.put(there, block)
    token = job_token()
    words = {"right": flight._credentials(token), "wrong": flight._credentials(job_token())}
    headers = [(b"authorization", words[one] if isinstance(one, str) else one) for one in shown or []]
    with closing(FlightServer(Shelf([memory]), token=token)) as server, fl.FlightClient(server.location) as client:
        options = fl.FlightCallOptions(timeout=5, headers=headers)
        heard = set()
        for key in (there, missing):
            request = Request(key, block.dtype, block.shape, 0.0)
            with pytest.raises(fl.FlightUnauthenticatedError) as caught:
                client.do_get(fl.Ticket(request.encode()), options).read_all()
            heard.add(str(caught.value))
        assert len(heard) == 1
        for ask in (client.list_flights, client.list_actions):
            with pytest.raises(fl.FlightUnauthenticatedError):
                list(ask(options=options))
        with closing(FlightPeers({0: server.location}, token=job_token(), timeout=TIMEOUT)) as peers:
            assert peers.get_into(0, there, np.empty_like(block), wait=0) is Answer.LOST


def test_a_request_that_is_none_is_refused(memory: MemoryTier) -> None:
    """A ticket of anything else is an error to its sender, and to nobody else."""
    token = job_token()
    with closing(FlightServer(Shelf([memory]), token=token)) as server, fl.FlightClient(server.location) as client:
        options = fl.FlightCallOptions(timeout=5, headers=[(b"authorization", flight._credentials(token))])
        for ticket in (b"", b"\xff", b"{}", b"[" * 50_000, b" " * 2**17):
            with pytest.raises(fl.FlightServerError, match="request"):
                client.do_get(fl.Ticket(ticket), options).read_all()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """Return a self-signed certificate for loopback and for a name of the job's."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "job")])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName("job.invalid"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return Tls(folder / "cert.pem", folder / "key.pem", folder / "cert.pem")


@pytest.mark.parametrize("name", ["", "job.invalid"])
def test_tls(memory: MemoryTier, certificates: Tls, peer_laws: ModuleType, name: str) -> None:
    """With certificates blocks come encrypted, by address or by the job's name; plain and distrusting clients fail."""
    tls = Tls(certificates.certificate, certificates.key, certificates.roots, name)
    block = peer_laws.random_block((2, 50, 60, 70))
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token = job_token()
    with closing(FlightServer(Shelf([memory]), token=token, tls=tls)) as server:
        assert server.location.startswith("grpc+tls://127.0.0.1:")
        plain = server.location.replace("grpc+tls", "grpc+tcp")
        stranger = Tls(tls.certificate, tls.key, tls.roots, "stranger.invalid")
        for location, words, expected in (
            (server.location, tls, Answer.GOT),
            (plain, None, Answer.LOST),
            (server.location, None, Answer.LOST),
            (server.location, stranger, Answer.LOST),
        ):
            with closing(FlightPeers({0: location}, token=token, timeout=TIMEOUT, tls=words)) as peers:
                out = np.zeros_like(block)
                assert peers.get_into(0, key, out, wait=0) is expected
                assert (out == block).all() == (expected is Answer.GOT)


def test_tls_files_that_are_not_there(memory: MemoryTier, certificates: Tls, tmp_path: Path) -> None:
    """A missing or broken file is named."""
    missing = Tls(tmp_path / "none.pem", certificates.key, tmp_path / "none.pem")
    with pytest.raises(NotFoundError, match=r"none\.pem"):
        FlightServer(Shelf([memory]), token=job_token(), tls=missing)
    with pytest.raises(NotFoundError, match=r"none\.pem"):
        FlightPeers({}, token=job_token(), tls=missing)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "localhost", ""])  # noqa: S104 - refused
def test_hosts_that_are_refused(memory: MemoryTier, host: str) -> None:
    """A server listens at one address, never at all of them."""
    with pytest.raises(UsageError, match="host"):
        FlightServer(Shelf([memory]), token=job_token(), host=host)


def test_what_else_is_refused(memory: MemoryTier, peer_laws: ModuleType) -> None:
    """Short tokens, strange addresses, unknown groups and time-outs that never end are errors."""
    with pytest.raises(UsageError, match="token"):
        FlightServer(Shelf([memory]), token=b"short")
    with pytest.raises(StorageError, match=r"192\.0\.2\.1"):
        FlightServer(Shelf([memory]), token=job_token(), host="192.0.2.1")
    with pytest.raises(UsageError, match="timeout"):
        FlightPeers({}, token=job_token(), timeout=float("inf"))
    block = peer_laws.random_block((1, 2, 2, 2))
    with closing(FlightPeers({}, token=job_token())) as peers, pytest.raises(UsageError, match="group"):
        peers.get_into(0, peer_laws.fresh_key(block.shape), block, wait=0)


def test_closing_sends_away_who_waits(memory: MemoryTier, peer_laws: ModuleType) -> None:
    """A server that closes does not wait for those who wait for a block."""
    token = job_token()
    server = FlightServer(Shelf([memory]), token=token)
    like = peer_laws.random_block((1, 4, 4, 4))
    key = peer_laws.fresh_key(like.shape)
    found: list[Answer] = []
    with closing(FlightPeers({0: server.location}, token=token, timeout=30.0)) as peers:
        peers.get_into(0, key, np.empty_like(like), wait=0)  # connects
        waiter = threading.Thread(target=lambda: found.append(peers.get_into(0, key, np.empty_like(like), wait=60.0)))
        waiter.start()
        begin = time.monotonic()
        server.close()
        waiter.join(peer_laws.SLACK)
    assert found
    assert found[0] in {Answer.ABSENT, Answer.LOST}
    assert time.monotonic() - begin < peer_laws.SLACK


def test_closing_with_a_client_that_hangs(memory: MemoryTier, peer_laws: ModuleType) -> None:
    """A client that takes no more of a block holds a closing server up until the client's time-out, no longer."""
    block = peer_laws.random_block((12, 2**10, 2**10), "u1")
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)
    token = job_token()
    server = FlightServer(Shelf([memory]), token=token)
    with fl.FlightClient(server.location) as client:
        options = fl.FlightCallOptions(timeout=TIMEOUT, headers=[(b"authorization", flight._credentials(token))])
        reader = client.do_get(fl.Ticket(Request(key, block.dtype, block.shape, 0.0).encode()), options)
        reader.read_chunk()
        begin = time.monotonic()
        server.close()
        assert time.monotonic() - begin < TIMEOUT + peer_laws.SLACK
        reader.cancel()


@pytest.mark.usefixtures("no_leaks")
def test_nothing_is_left(memory: MemoryTier, peer_laws: ModuleType) -> None:
    """Servers and clients that come and go leave no descriptor and no thread of the system behind."""
    block = peer_laws.random_block((1, 8, 8, 8))
    key = peer_laws.fresh_key(block.shape)
    memory.put(key, block)

    def once() -> None:
        token = job_token()
        with (
            closing(FlightServer(Shelf([memory]), token=token)) as server,
            closing(FlightPeers({0: server.location}, token=token)) as peers,
        ):
            assert peers.get_into(0, key, np.empty_like(block), wait=0) is Answer.GOT

    def left() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir()))

    for _ in range(3):
        once()
    before = left()
    for _ in range(5):
        once()
    deadline = time.monotonic() + processes.LIMIT  # gRPC's threads take a moment to end
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
        closing(FlightServer(Shelf([memory]), token=token, lent=block.nbytes - 1)) as server,
        closing(FlightPeers({0: server.location}, token=token)) as peers,
    ):
        with pytest.warns(RuntimeWarning, match="at most 65535 are lent"):
            assert peers.get_into(0, key, np.empty_like(block), wait=0) is Answer.ABSENT
        assert peers.get_into(0, key, np.empty_like(block), wait=0) is Answer.ABSENT


def test_lending_buffers() -> None:
    """Buffers come back with the last reference, are used again, and never exceed the limit."""
    buffers = LendingBuffers(1000)
    first = buffers.take(600, patience=0)
    assert first is not None
    where, exported = first.__array_interface__["data"], pa.py_buffer(first)
    assert buffers.take(401, patience=0) is None
    assert buffers.take(1001, patience=60) is None
    small = buffers.take(400, patience=0)
    assert small is not None
    del first
    assert buffers.take(1, patience=0) is None
    piece = exported.slice(5, 5)
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
