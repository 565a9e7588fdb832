"""Dropping: what commands answer is understood. That caches are dropped, test_coldness.py shows."""

from __future__ import annotations

import shutil

import pytest

from voxload.benchmark.cold.coldness import _run


@pytest.mark.parametrize(
    ("script", "expected"),
    [("cat", ""), ("cat >&2; exit 3", "sorry"), ("exit 3", "exit status 3")],
)
def test_a_command_says_what_went_wrong(script: str, expected: str) -> None:
    """Nothing where it worked, its own words where it has some, its exit status else."""
    shell = shutil.which("sh")
    assert shell is not None
    assert _run([shell, "-c", script], "sorry") == expected


def test_a_command_that_cannot_start_is_named() -> None:
    """As the system says it."""
    assert "No such file" in _run(["/proc/none/sudo"], "")
