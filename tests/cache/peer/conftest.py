"""Owners of blocks in processes of their own, for the tests of peers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Listener
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy.typing as npt
import pytest

from voxload.cache.block import BlockKey
from voxload.cache.peer.address import job_token

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
            assert self.process.wait(20) == 0
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
