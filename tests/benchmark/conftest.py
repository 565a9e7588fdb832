"""What tests of the page cache need: nobody else who empties it meanwhile."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_VM = Path("/proc/sys/vm")
"""Where caches are dropped: who locks this folder has the machine's, whatever run asks."""


@pytest.fixture
def page_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have the node's page cache to oneself, among the tests' processes of this run and of others on this machine.

    One test drops all caches, and whoever counts what devices gave then counts the pages of its own libraries too.
    """
    own = tmp_path_factory.getbasetemp().parent / "page-cache.lock"
    own.touch()
    lock = os.open(_VM if _VM.is_dir() else own, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
