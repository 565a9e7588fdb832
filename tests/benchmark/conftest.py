"""What tests of the page cache need: nobody else who empties it meanwhile."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest


@pytest.fixture
def page_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have the node's page cache to oneself, among the tests' processes.

    One test drops all caches, and whoever counts what devices gave then counts the pages of its own libraries too.
    """
    with (tmp_path_factory.getbasetemp().parent / "page-cache.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
