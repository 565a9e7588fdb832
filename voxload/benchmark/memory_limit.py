"""Memory limit: how much memory this process may have at most, and so how much of a data set a node can keep."""

from __future__ import annotations

from pathlib import Path

from voxload.errors import StorageError
from voxload.memory_left import groups


def memory_limit(proc: Path = Path("/proc")) -> int:
    """Return the bytes of memory of this node, or of the least memory cgroup above this process where that is less.

    Pages of files that a group reads count as its memory, so its limit bounds its page cache too.

    Parameters
    ----------
    proc
        Where the process file system is mounted.

    Raises
    ------
    StorageError
        Where ``meminfo`` does not say how much memory there is.
    """
    memberships, mounts = (_text(proc / "self" / name) for name in ("cgroup", "mountinfo"))
    limits = [_text(folder / version.limit).strip() for folder, version in groups(memberships, mounts)]
    # Without a limit, version 2 says "max", and version 1 a number near 2**63.
    return min([_physical(proc / "meminfo"), *(int(limit) for limit in limits if limit.isdigit())])


def _physical(path: Path) -> int:
    for line in _text(path).splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 2**10
    raise StorageError(f"{path}", found="no MemTotal", expected="the memory of this node", remedy="say how much it has")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a system without cgroups, or a group without a limit
        return ""
