"""How much memory this process may still take for files in memory, by everyone who has a say in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_CGROUPS = Path("/sys/fs/cgroup")


def allowed_bytes(folder: Path) -> int:
    """Return the bytes that files in the memory file system of `folder` may still take.

    The least of what the file system, the kernel (``MemAvailable``) and every memory cgroup above this process allow:
    a file system is often larger than what a container may use, and the kernel ends who goes beyond that.
    """
    system = os.statvfs(folder)
    return max(0, min(system.f_bavail * system.f_frsize, _available(), *_cgroup_rooms()))


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 2**63


def _cgroup_rooms() -> Iterator[int]:
    yield 2**63
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, names = _CGROUPS, ("memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            base, names = _CGROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        else:
            continue
        group = PurePosixPath(path)
        for level in (group, *group.parents):
            room = _room(base / str(level).lstrip("/"), *names)
            if room is not None:
                yield room


def _room(folder: Path, limit: str, usage: str, prefix: str) -> int | None:
    """Return what a cgroup leaves; file pages that the kernel can drop at will do not count. None without a limit."""
    try:
        allowed = (folder / limit).read_text().strip()
        if allowed == "max":
            return None
        found = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        cached = sum(int(found.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))
        return int(allowed) - int((folder / usage).read_text()) + cached
    except (OSError, ValueError):  # the level is not seen from inside a container
        return None
