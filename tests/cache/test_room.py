"""How much memory is left: the least of what everyone allows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from voxload.cache.room import _room, allowed_bytes


def test_the_file_system_has_a_say(tmp_path: Path) -> None:
    """No more than is free, and something on a machine that runs tests."""
    system = os.statvfs(tmp_path)
    assert 0 < allowed_bytes(tmp_path) <= system.f_blocks * system.f_frsize


@pytest.mark.parametrize(
    ("names", "prefix"),
    [(("memory.max", "memory.current"), ""), (("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_")],
)
def test_a_cgroup_has_a_say(tmp_path: Path, names: tuple[str, str], prefix: str) -> None:
    """Its limit less its use, but for file pages that the kernel can drop; both versions of the interface."""
    assert _room(tmp_path, *names, prefix) is None
    (tmp_path / names[0]).write_text("1000\n")
    (tmp_path / names[1]).write_text("800\n")
    (tmp_path / "memory.stat").write_text(f"anon 500\n{prefix}active_file 60\n{prefix}inactive_file 40\nshmem 200\n")
    assert _room(tmp_path, *names, prefix) == 300
    (tmp_path / names[0]).write_text("max\n")
    assert _room(tmp_path, *names, prefix) is None
