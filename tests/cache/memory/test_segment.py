"""How much memory is left: the least of what everyone allows."""

from __future__ import annotations

import os
from pathlib import Path

from voxload.cache.memory.segment import allowed_bytes


def test_the_file_system_has_a_say(tmp_path: Path) -> None:
    """No more than is free, and something on a machine that runs tests."""
    system = os.statvfs(tmp_path)
    assert 0 < allowed_bytes(tmp_path) <= system.f_blocks * system.f_frsize
