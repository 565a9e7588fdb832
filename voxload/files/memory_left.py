"""Memory left: how much memory this process can still take, by everyone who has a say in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class Version:
    """How one version of the cgroup interface calls things."""

    limit: str
    usage: str
    prefix: str
    """Of the figures in memory.stat that include groups below."""


V1 = Version("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
V2 = Version("memory.max", "memory.current", "")


def memory_left() -> int:
    """Return the bytes that can still be taken, pages of files that the kernel drops at will included; 0 or more.

    The least of what the machine has (MemAvailable) and every memory cgroup above this process leaves; levels that a
    container does not show are not known.
    """
    memberships, mounts = (_text(Path(f"/proc/self/{name}")) for name in ("cgroup", "mountinfo"))
    rooms = (room(folder, version) for folder, version in groups(memberships, mounts))
    return max(0, min([_available(), *(found for found in rooms if found is not None)]))


def groups(memberships: str, mounts: str) -> Iterator[tuple[Path, Version]]:
    """Yield the folder of each memory cgroup above a process, from its own up, and its version; pure.

    Parameters
    ----------
    memberships, mounts
        What /proc/PID/cgroup and /proc/PID/mountinfo say.
    """
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        version = V1 if controllers else V2
        for root, mount in _mounted(mounts, version):
            group = PurePosixPath(path)
            # A container may see but a part of the hierarchy: what lies above its root is not mounted.
            below = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
            for level in (below, *below.parents):
                yield Path(mount, level), version


def room(folder: Path, version: Version) -> int | None:
    """Return what one cgroup leaves, in bytes; None without a limit, and where it has no such file, as the root."""
    try:
        limit = int((folder / version.limit).read_text())
    except (OSError, ValueError):  # "max" is no number
        return None
    used = int((folder / version.usage).read_text())
    found = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return limit - used + sum(int(found.get(f"{version.prefix}{kind}_file", 0)) for kind in ("active", "inactive"))


def _mounted(mounts: str, version: Version) -> Iterator[tuple[str, str]]:
    """Yield the root within the hierarchy and the mount point of each mount of one version with memory in it."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(maxsplit=2)
        if kind == "cgroup2" if version is V2 else kind == "cgroup" and "memory" in options.split(","):
            root, point = before.split()[3:5]
            yield root, point


def _available() -> int:
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 2**63


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a system without cgroups
        return ""
