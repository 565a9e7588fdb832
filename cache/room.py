"""How much memory this process may still take for files in memory, by everyone who has a say in it."""

from __future__ import annotations

import os
from pathlib import Path

from voxload.memory_left import memory_left


def allowed_bytes(folder: Path) -> int:
    """Return the bytes that files in the memory file system of `folder` may still take.

    The least of what the file system, the kernel and every memory cgroup above this process allow: a file system is
    often larger than what a container may use, and the kernel ends who goes beyond that.
    """
    system = os.statvfs(folder)
    return max(0, min(system.f_bavail * system.f_frsize, memory_left()))
