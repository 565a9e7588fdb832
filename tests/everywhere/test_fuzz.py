"""Thousands of damaged sources into a conversion: what tests/support/fuzzing claims."""

from __future__ import annotations

import pytest

from tests.support import scripts

SCRIPT = "import sys; from tests.support.fuzzing.command import main; sys.exit(main())"


@pytest.mark.parametrize("count", [21, pytest.param(4200, marks=pytest.mark.long)])
def test_no_damage_is_stored_in_silence(count: int) -> None:
    """Damage under a checksum is an error, and none ends the process, hangs it, or takes memory without bound."""
    words = ["convert", "--count", str(count), "--seed", "1", "--jobs", "1", "--seconds", "600"]
    ran = scripts.run(SCRIPT, *words, imports=["tests.support.fuzzing.command", "voxload.convert"], check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
