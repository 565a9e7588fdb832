"""Locality: whether a path lies on a file system of this node."""

from __future__ import annotations

import os
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


def is_node_local(path: str) -> bool:
    """Tell whether `path` lies on a node-local file system; an unknown kind counts as remote."""
    real = os.path.realpath(path)
    best, kind = "", ""
    for mount, name in _mounts():
        if len(mount) >= len(best) and (real == mount or real.startswith(mount.rstrip("/") + "/")):
            best, kind = mount, name
    return kind in _LOCAL


@lru_cache(maxsize=1)
def _mounts() -> tuple[tuple[str, str], ...]:
    """Return (mount point, file system) of each mount; read once, as data sets do not move while they are read.

    Source: proc(5), /proc/self/mountinfo: the fields after the lone hyphen begin with the file system's type.
    """
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ()
    found = []
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = before.split()[4].replace("\\040", " ")
        found.append((mount, after.split()[0]))
    return tuple(found)
