"""A ring of three services: the storage is read once for all, and what one of them does is no error of others."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from signal import Signals
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import voxload
from tests.serve.conftest import until
from tests.serve.ring.test_members import STORE
from tests.support import processes
from tests.support.settled import settle
from voxload.serve.asking import figures

pytestmark = pytest.mark.usefixtures("no_leaks")
ROOT = Path(__file__).parents[3]
SAMPLES, SIDE, NODES = 24, 8, 3


class Nodes:
    """Three services that meet by a store of torch."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack, self._folder = stack, folder
        self.token = folder / "token"
        self.token.write_text(secrets.token_hex(16))
        command = [sys.executable, "-c", STORE]
        self.store = stack.enter_context(
            processes.started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        )
        assert self.store.stdout is not None
        self.place = f"torch:127.0.0.1:{self.store.stdout.readline().strip()}"
        self.services = [self._begun(number) for number in range(NODES)]
        for service in self.services:
            _serving(service)

    def path(self, number: int) -> Path:
        """Return a service's socket."""
        return self._folder / str(number) / "socket"

    def start(self, number: int, **options: str) -> subprocess.Popen[str]:
        """Start a service."""
        return _serving(self._begun(number, **options))

    def _begun(self, number: int, **options: str) -> subprocess.Popen[str]:
        words = {"memory": "16MiB", "socket": str(self.path(number)), "ring": self.place, "ring-token": str(self.token)}
        program = str(Path(sys.executable).parent / "voxload")
        command = [
            program,
            "serve",
            *(word for name, value in (words | options).items() for word in (f"--{name}", value)),
        ]
        return self._stack.enter_context(processes.started(command, stderr=subprocess.PIPE, text=True, cwd=ROOT))

    def figures(self, number: int) -> dict[str, Any]:
        """Return a service's figures."""
        return figures(self.path(number))

    def met(self, *numbers: int, count: int) -> None:
        """Wait until services see so many members."""
        until(lambda: all(self.figures(number)["ring"] == count for number in numbers))

    def storage_reads(self, *numbers: int) -> int:
        """Return how many blocks services have read from the storage."""
        reads = [self.figures(number)["reads"] for number in numbers]
        return sum(one["done"] - one["from_disk"] - one["from_others"] - one["failed"] for one in reads)


def _serving(service: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """Return a service once it lets clients in."""
    assert service.stderr is not None
    line = service.stderr.readline()
    assert "serving" in line, line
    return service


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Yield three services that know of each other."""
    with ExitStack() as stack:
        found = Nodes(stack, tmp_path)
        found.met(0, 1, 2, count=NODES)
        yield found


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Return a folder of samples."""
    folder = tmp_path / "samples"
    folder.mkdir()
    drawn = np.random.default_rng(0)
    for number in range(SAMPLES):
        with h5py.File(folder / f"{number:02}.h5", "w") as file:
            voxels = drawn.integers(0, 99, (1, SIDE, SIDE, SIDE)).astype(np.int16)
            file.create_dataset("x", data=voxels, chunks=(1, 4, 4, 4), compression="gzip")
    settle(folder)
    return folder


def stream(samples: Path, cache: voxload.Cache | None, epochs: int = 1) -> list[torch.Tensor]:
    """Return the batches of a loader, which are those of any other with the same seed."""
    data = voxload.VolumeDataset(str(samples / "*.h5"), fields={"x": "x"}, axes="CDHW")
    shuffled = torch.Generator().manual_seed(3)
    loader = voxload.DataLoader(data, batch_size=2, shuffle=True, num_workers=2, cache=cache, generator=shuffled)
    found = [
        batch.clone() if isinstance(batch, torch.Tensor) else batch[0].clone()
        for _ in range(epochs)
        for batch in loader
    ]
    loader.close()
    return found


def same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Assert that two streams are one."""
    assert len(found) == len(expected) > 0
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_the_storage_is_read_once(nodes: Nodes, samples: Path) -> None:
    """For the jobs of three nodes, by the blocks' homes."""
    expected = stream(samples, None)
    for number in range(NODES):
        same(stream(samples, voxload.Cache(service=nodes.path(number))), expected)
        assert nodes.storage_reads(0, 1, 2) == SAMPLES
    homes = [nodes.storage_reads(number) for number in range(NODES)]
    assert min(homes) > 0


@pytest.mark.long
def test_a_node_that_is_lost(nodes: Nodes, samples: Path) -> None:
    """Its blocks are read again, by who asks at first and by their new homes later."""
    expected = stream(samples, None, 2)
    same(stream(samples, voxload.Cache(service=nodes.path(0)), 2), expected)
    nodes.services[2].send_signal(Signals.SIGKILL)
    nodes.services[2].wait()
    same(stream(samples, voxload.Cache(service=nodes.path(1)), 2), expected)
    nodes.met(0, 1, count=2)
    nodes.start(2)
    nodes.met(0, 1, 2, count=3)
    same(stream(samples, voxload.Cache(service=nodes.path(2)), 2), expected)


@pytest.mark.long
def test_a_node_that_is_stopped(nodes: Nodes, samples: Path) -> None:
    """Holds nobody up for long: the storage has what it does not give."""
    expected = stream(samples, None)
    nodes.services[2].send_signal(Signals.SIGSTOP)
    try:
        same(stream(samples, voxload.Cache(service=nodes.path(0))), expected)
    finally:
        nodes.services[2].send_signal(Signals.SIGCONT)


@pytest.mark.long
def test_what_they_meet_by_is_lost(nodes: Nodes, samples: Path) -> None:
    """The ring stays what it was."""
    nodes.store.kill()
    nodes.store.wait()
    expected = stream(samples, None)
    for number in range(NODES):
        same(stream(samples, voxload.Cache(service=nodes.path(number))), expected)
    assert nodes.storage_reads(0, 1, 2) == SAMPLES
    assert nodes.figures(0)["ring"] == NODES


@pytest.mark.long
def test_who_does_not_know_the_token(nodes: Nodes, samples: Path, tmp_path: Path) -> None:
    """Gives nothing and gets nothing; what it makes of it is read from the storage."""
    other = tmp_path / "other"
    other.write_text(secrets.token_hex(16))
    nodes.start(3, **{"ring-token": str(other)})
    nodes.met(0, 1, 2, 3, count=4)
    expected = stream(samples, None)
    for number in range(4):
        same(stream(samples, voxload.Cache(service=nodes.path(number))), expected)
    assert nodes.storage_reads(3) == SAMPLES
