"""Faults under load: whatever happens to a service, streams are those of a loader without a cache."""

from __future__ import annotations

import collections
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch

import voxload
from tests.serve.conftest import Start, until
from tests.serve.loading import SAMPLES, from_service, loader_of, same, served, stream, tensors, write_samples
from tests.serve.talking import client_of, octant
from tests.support import processes
from voxload.serve.asking import Visit, figures

pytestmark = pytest.mark.usefixtures("no_leaks")
CLIENTS = 200
EPOCHS = 3


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Return a folder of samples."""
    return write_samples(tmp_path / "samples")


def under_load(samples: Path, path: Path, act: Callable[[], object]) -> voxload.DataLoader:
    """Do something while two jobs load, and see that both streams are as they should be; return one of the loaders."""
    expected = [stream(loader_of(samples, None, seed=seed), EPOCHS) for seed in (1, 2)]
    other = loader_of(samples, voxload.Cache(service=path), seed=2)
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.extend(stream(other, EPOCHS)))
    loader, mine = loader_of(samples, voxload.Cache(service=path), seed=1), list[torch.Tensor]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that a service is gone is told
        thread.start()
        for epoch in range(EPOCHS):
            for number, batch in enumerate(loader):
                mine.extend(tensor.clone() for tensor in tensors(batch))
                if (epoch, number) == (1, 1):
                    act()
        thread.join()
        other.close()
    same(mine, expected[0])
    same(found, expected[1])
    return loader


@pytest.mark.long
def test_a_quota_that_is_cut_to_nothing(samples: Path, path: Path) -> None:
    """And given back."""
    with served(path):

        def cut() -> None:
            with Visit(path, "quota") as visit:
                visit.limit(0)

        loader = under_load(samples, path, cut)
        assert figures(path)["memory"]["blocks"] == 0
        with Visit(path, "quota") as visit:
            visit.limit(2**24)
        stream(loader)  # of what was read ahead while there was no memory
        stream(loader)
        until(lambda: figures(path)["memory"]["blocks"] == 2 * SAMPLES)
        loader.close()


@pytest.mark.long
def test_draining(samples: Path, path: Path, tmp_path: Path) -> None:
    """What was in memory is there for the next service."""
    disk = ["--disk", str(tmp_path / "disk"), "--disk-size", "16MiB"]
    with served(path, "16MiB", *disk) as service:

        def drain() -> None:
            with Visit(path, "drain") as visit:
                assert visit.drain() > 0

        loader = under_load(samples, path, drain)
        assert service.wait() == 0
        assert not path.exists()
        loader.close()
    with served(path, "16MiB", *disk):
        loader = loader_of(samples, voxload.Cache(service=path))
        stream(loader)
        assert figures(path)["reads"]["from_disk"] > 0
        loader.close()


@pytest.mark.long
def test_a_socket_that_is_removed(samples: Path, path: Path) -> None:
    """Who is in stays; who comes is told that nobody listens."""
    with served(path):
        loader = under_load(samples, path, path.unlink)
        assert from_service(loader) > 0
        loader.close()


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Give a disk of a megabyte to a block of code."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system of its own: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


@pytest.mark.long
def test_a_full_disk(samples: Path, path: Path, tmp_path: Path) -> None:
    """Filled by somebody else while the service stores."""
    with small_disk(tmp_path / "small"):
        disk = ["--disk", str(tmp_path / "small" / "tier"), "--disk-size", "900kB"]
        with served(path, "100kB", *disk):

            def fill() -> None:
                other = (tmp_path / "small" / "other").open("wb", buffering=0)
                with other, pytest.raises(OSError, match="space"):
                    collections.deque(iter(lambda: other.write(bytes(4096)), None), maxlen=0)

            under_load(samples, path, fill).close()


BACKWARDS = """
import time
real = time.time_ns
begin = real()
# From the moment on when something was read, this clock is an hour behind.
time.time_ns = lambda: real() - (3600 * 10**9 if real() > begin + 3 * 10**9 else 0)
from voxload.cli.start import main
main()
"""


@pytest.mark.long
def test_a_clock_that_is_set_back(samples: Path, path: Path) -> None:
    """Nothing is taken for what it is not: at worst it is not kept."""
    command = [sys.executable, "-c", BACKWARDS, "serve", "--memory", "100kB", "--socket", str(path)]
    with processes.started(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        expected = stream(loader_of(samples, None), 1)
        loader = loader_of(samples, voxload.Cache(service=path))
        for _ in range(3):
            same(stream(loader), expected if _ == 0 else stream(loader_of(samples, None), _ + 1)[-len(expected) :])
        loader.close()


def test_two_hundred_clients(start: Start, volume: Path) -> None:
    """All are in at once, all are served, and nothing is left of them."""
    service = start(memory=2**20)
    assert service.said == "ready"
    blocks = [octant(volume, number) for number in range(8)]
    with client_of(service) as first:  # the file stays open for who comes next
        first.name(*blocks)
        first.order(*range(8))
        first.want(3)
        until(lambda: service.figures()["reads"]["done"] == 8)
    until(lambda: service.figures()["jobs"] == [])
    before = service.descriptors()
    with ExitStack() as stack:
        clients = [stack.enter_context(client_of(service)) for _ in range(CLIENTS)]
        for client in clients:
            client.name(*blocks)
            client.order(*range(8))
            client.say(kind="want", block=3, again=0)
        for client in clients:
            assert client.hear() == {"kind": "there", "block": 3}
        assert len(service.figures()["jobs"]) == CLIENTS
        assert service.figures()["reads"]["done"] == 8
    until(lambda: service.figures()["jobs"] == [])
    until(lambda: service.descriptors() == before)
