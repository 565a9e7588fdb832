"""Hog and what is left: memory is really taken, given back, and never beyond what there is."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from voxload.benchmark.cold.node_memory import HeldMemory
from voxload.errors import UsageError
from voxload.files.memory_left import memory_left

SIZE = 64 << 20


def resident() -> int:
    """Return the bytes of this process's own memory that are in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def shared() -> int:
    """Return the bytes of shared memory of this process that are in memory: anonymous maps that are shared."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssShmem:"))


def test_memory_is_held_until_it_is_given_back() -> None:
    """Every page, and not merely reserved."""
    gc.collect()  # what earlier tests have left would go meanwhile, and count as memory that is not held
    before = resident() + shared()
    with HeldMemory(SIZE) as hog:
        held = resident() + shared() - before
        assert hog.nbytes == SIZE
    left = resident() + shared() - before
    hog.close()
    assert SIZE <= held < SIZE + (8 << 20)
    assert left < 8 << 20


def test_no_more_is_taken_than_there_is() -> None:
    """Refused before anything is taken, with both figures."""
    before = resident() + shared()
    with pytest.raises(UsageError, match=r"holding .*found .* left"):
        HeldMemory(memory_left())
    assert resident() + shared() - before < 8 << 20


def test_nothing_may_be_held() -> None:
    """Zero bytes cost nothing."""
    with HeldMemory(0) as hog:
        assert not hog.is_locked
