"""Thousands of damaged sources into a conversion: what bench/fuzz_convert.py claims."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import processes

SCRIPT = Path(__file__).parents[2] / "bench" / "fuzz_convert.py"


@pytest.mark.parametrize("count", [84, pytest.param(4200, marks=pytest.mark.long)])
def test_no_damage_is_stored_in_silence(count: int) -> None:
    """Damage under a checksum is an error, and none ends the process, hangs it, or takes memory without bound."""
    words = [sys.executable, str(SCRIPT), "--count", str(count), "--seed", "1", "--jobs", "1", "--seconds", "600"]
    ran = processes.run(words, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
