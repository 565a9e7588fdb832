"""What tests of readers share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rangeserver import RangeServer, serving
from voxload.readers import set_chunk_cache
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
