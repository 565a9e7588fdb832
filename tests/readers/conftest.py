"""What tests of readers share."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.support.rangeserver import RangeServer, serving
from voxload.readers import Location, open_reader, set_chunk_cache, warm
from voxload.readers.remote import store
from voxload.readers.remote.retries import RetryPolicy


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait a hundredth as long as users do between requests; the number of attempts is theirs."""
    monkeypatch.setattr(store, "RETRIES", RetryPolicy(first_wait=0.001, longest_wait=0.02, silence=5.0))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    """Serve a folder on the loopback interface until the test ends."""
    with serving(tmp_path) as site:
        yield site


@pytest.fixture
def chunk_cache_off() -> Iterator[None]:
    """Leave no cache behind."""
    yield
    set_chunk_cache(0)


@pytest.fixture(scope="session")
def casts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile the casts of 16-bit integers in one process of tests: in a fresh clone each took seconds for the same."""
    path = tmp_path_factory.mktemp("casts") / "x.npy"
    np.save(path, np.zeros((2, 2, 2), "<i2"))
    with Path(__file__).open() as lock, closing(open_reader(Location(str(path)))) as reader:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the file is closed
        warm(reader.describe(), np.float32)
