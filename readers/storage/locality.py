"""Locality: whether a path lies on a file system of this node."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_LOCAL = frozenset(
    {
        "bcachefs",
        "btrfs",
        "erofs",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "overlay",
        "ramfs",
        "squashfs",
        "tmpfs",
        "xfs",
        "zfs",
    }
)
"""File systems whose pages cannot vanish with a server: a memory map of their files is safe to read."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system."""

    point: str
    """Where it is mounted."""
    kind: str
    """Such as ``ext4`` or ``lustre``; empty where the system does not say."""
    source: str
    """What is mounted: a device, or a server and its path."""


def is_node_local(path: str) -> bool:
    """Tell whether `path` lies on a node-local file system; an unknown kind counts as remote."""
    return mount_of(path).kind in _LOCAL


def mount_of(path: str | os.PathLike[str]) -> Mount:
    """Return the mount that a path lies on, whether or not there is such a file."""
    real = os.path.realpath(path)
    best = Mount("", "", "")
    for mount in _mounts():
        is_inside = real == mount.point or real.startswith(mount.point.rstrip("/") + "/")
        # Later mounts lie over earlier ones.
        if is_inside and len(mount.point) >= len(best.point):
            best = mount
    return best


@lru_cache(maxsize=1)
def _mounts() -> tuple[Mount, ...]:
    """Return all mounts; read once, as data sets do not move while they are read.

    Source: proc(5), /proc/self/mountinfo: the fields after the lone hyphen begin with the file system's type.
    """
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ()
    found = []
    for line in lines:
        before, _, after = line.partition(" - ")
        kind, source, *_ = after.split()
        found.append(Mount(before.split()[4].replace("\\040", " "), kind, source))
    return tuple(found)
