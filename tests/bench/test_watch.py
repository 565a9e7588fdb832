"""The watch over damaged inputs takes the start of a process for no input that hangs."""

from __future__ import annotations

from pathlib import Path

from tests.support.fuzzing.watch import _Process


def test_a_slow_start_is_no_hang() -> None:
    """Reading all sound volumes once takes longer on a busy machine than an input may."""
    process = _Process([7], Path(), 0, 0, begun=100.0)
    assert not process.is_late(200.0, seconds=20)
    assert process.is_late(1000.0, seconds=20)
    process.is_ready = True
    assert process.is_late(200.0, seconds=20)
