"""What tests of remote storage share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rangeserver import RangeServer, serving
from voxload.readers.remote import store
from voxload.readers.remote.patience import Patience


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait a hundredth as long as users do between requests; the number of attempts is theirs."""
    monkeypatch.setattr(store, "PATIENCE", Patience(first_wait=0.001, longest_wait=0.02, silence=5.0))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    """Serve a folder on the loopback interface until the test ends."""
    with serving(tmp_path) as site:
        yield site
