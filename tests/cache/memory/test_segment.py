"""How much memory is left: the least of what everyone allows."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import pytest

from voxload.cache.memory.segment import Segment, allowed_bytes


def _release() -> tuple[int, int]:
    """Return the kernel's version."""
    major, minor = re.findall(r"\d+", platform.release())[:2]
    return int(major), int(minor)


def _mapped_bytes(path: str) -> int:
    """Return how many bytes of a file's map this process has mapped; proc(5), smaps."""
    inode = os.stat(path).st_ino  # noqa: PTH116 - names of files without a name are their numbers
    smaps = Path("/proc/self/smaps").read_text()
    found = re.search(
        rf"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ {inode} .*/dev/shm/(?:.*\n)+?Rss: +(\d+) kB", smaps, re.MULTILINE
    )
    assert found is not None
    return int(found[1]) * 1024


def test_the_file_system_has_a_say(tmp_path: Path) -> None:
    """No more than is free, and something on a machine that runs tests."""
    system = os.statvfs(tmp_path)
    assert 0 < allowed_bytes(tmp_path) <= system.f_blocks * system.f_frsize


@pytest.mark.skipif(_release() < (5, 14), reason="needs Linux 5.14: MADV_POPULATE_WRITE")
def test_pages_are_mapped_as_far_as_they_are_wanted() -> None:
    """Those before a byte, at once and once; none beyond, and none where that was asked for before."""
    size = 2**23
    segment = Segment("mapped", size=size, head=b"head")
    try:
        assert _mapped_bytes(segment.path) < size // 4
        segment.map_to(size // 2 + 1)
        assert size // 2 < _mapped_bytes(segment.path) < size * 3 // 4
        segment.map_to(size // 4)
        assert size // 2 < _mapped_bytes(segment.path) < size * 3 // 4
        segment.map_to(size)
        assert _mapped_bytes(segment.path) == size
        assert bytes(segment.memory[:4]) == b"head"
        assert not segment.memory[4:].any()
    finally:
        segment.close()
