"""The kind of file system that a path lies on, and what of its caches this node cannot see."""

from __future__ import annotations

import os

from voxload.readers.storage.locality import mount_of

_PAGED = frozenset(
    {"bcachefs", "btrfs", "ecryptfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "overlay", "squashfs", "vfat", "xfs"}
)
"""Kinds that keep data in the page cache of this node and nowhere else."""
_APART = frozenset({"gpfs", "mmfs", "zfs"})
"""Kinds that keep data in memory of this node outside the page cache."""
_MEMORY = frozenset({"ramfs", "tmpfs"})
"""Kinds whose files live in memory."""


def file_system(path: str | os.PathLike[str]) -> str:
    """Return the kind of file system, such as ``ext4`` or ``lustre``; empty where the system does not say."""
    return mount_of(path).kind


def keeps_apart(kind: str) -> bool:
    """Tell whether such a file system keeps data in memory that emptying the page cache leaves alone."""
    return kind in _APART


def cache_note(kind: str) -> str:
    """Return what a reader must know about caches of such a file system; empty for nothing."""
    if kind in _APART:
        return f"{kind} keeps a cache of its own in memory, which was neither emptied nor looked at"
    if kind in _MEMORY:
        return f"{kind} keeps its files in memory, so that no storage is measured"
    if kind in _PAGED:
        return ""
    return f"caches behind {kind or 'this file system'}, of a host or of servers, are out of reach"
