"""Owners of blocks in processes of their own, for the tests of peers."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Listener
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy.typing as npt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support import processes
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.peer.address import job_token
from voxload.cache.peer.tls import Tls
from voxload.cache.protocol import BlockKey

SCRIPT = Path(__file__).parent / "owner.py"


class OwnerProcess:
    """A running owner; the laws' `Owner`."""

    def __init__(self, folder: Path) -> None:
        self.token = job_token()
        with Listener(str(folder / "orders")) as listener:
            self.process = subprocess.Popen([sys.executable, str(SCRIPT), str(folder / "orders")])
            self._link = listener.accept()
        self._link.send(self.token)
        address, _ = self._link.recv()
        self.arena, self.location = address.arena, address.location

    def _tell(self, *order: Any) -> Any:
        self._link.send(order)
        return self._link.recv()

    def put(self, key: BlockKey, block: npt.NDArray[Any]) -> bool:
        """Store a block."""
        return bool(self._tell("put", key, block))

    def put_soon(self, key: BlockKey, block: npt.NDArray[Any]) -> None:
        """Store a block a moment later."""
        self._tell("put_soon", key, block)

    def drop(self, key: BlockKey) -> None:
        """Forget a block."""
        self._tell("drop", key)

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal; returns when all threads stand where it was told to stop."""
        self.process.send_signal(number)
        if number is signal.SIGSTOP:
            os.waitpid(self.process.pid, os.WUNTRACED)

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait()

    def close(self) -> int:
        """Let it end by itself; return the threads that it had in the end, and -1 where it was killed before."""
        threads = -1
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self._link.send(None)
            threads = self._link.recv()
            assert self.process.wait(processes.LIMIT) == 0
        self._link.close()
        return threads


@pytest.fixture(scope="session")
def peer_laws(law: Callable[[str], ModuleType]) -> ModuleType:
    """Return the conformance kit of peers."""
    return law("peers")


@pytest.fixture(scope="session")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnerProcess]:
    """Yield an owner that tests share and leave as they found it; it ends without a thread or a file left."""
    started = OwnerProcess(tmp_path_factory.mktemp("owner"))
    try:
        yield started
    finally:
        threads = started.close()
    assert threads == 1
    assert not Path(started.arena).exists()


@pytest.fixture
def doomed_owner(tmp_path: Path) -> Iterator[OwnerProcess]:
    """Yield an owner that a test may kill."""
    started = OwnerProcess(tmp_path)
    try:
        yield started
    finally:
        started.close()


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


@pytest.fixture
def memory() -> Iterator[MemoryTier]:
    """Yield a memory tier of this process."""
    with closing(MemoryTier(2**24, job="test-peers")) as tier:
        yield tier
