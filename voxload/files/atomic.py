"""Files and folders that appear whole or not at all.

Rule: nothing is ever written under its final name. A new file or folder grows beside its final place under
a temporary name and is renamed when it is complete, so a reader sees the old state or the new one. A rename
is atomic only inside one file system, hence beside and not in the system's temporary folder.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path

TEMPORARY_MARK = ".partial-"
"""Part of every temporary name; what carries it is never a finished result."""

_WITHDRAWN = f"{TEMPORARY_MARK}withdrawn"


def temporary_beside(path: Path) -> Path:
    """Return a temporary name beside `path` that belongs to this process, among all nodes that see the folder."""
    return path.with_name(f".{path.name}{TEMPORARY_MARK}{platform.node()}-{os.getpid()}")


def remove(path: Path) -> None:
    """Remove a file or a folder with all it holds; nothing happens when there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_partials(path: Path) -> None:
    """Remove what processes left that were killed while they replaced `path`; none may be doing so now."""
    for left in path.parent.glob(f"{escape(f'.{path.name}{TEMPORARY_MARK}')}*"):
        remove(left)


def sync(path: Path) -> None:
    """Flush a file, or every file of a folder and the folder itself, to the device."""
    for part in (path, *(path.rglob("*") if path.is_dir() else ())):
        descriptor = os.open(part, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; what was written there takes its place when the block succeeds.

    The content is flushed before the rename, so that a power cut cannot leave an empty file under the final
    name. On any exception the temporary content is removed and `path` is as it was. Folders change places as `publish`
    says. One thread of a process at a time may replace one path.
    """
    temporary = temporary_beside(path)
    remove(temporary)
    try:
        yield temporary
        sync(temporary)
        publish(temporary, path)
    except BaseException:
        remove(temporary)
        raise


def publish(temporary: Path, path: Path) -> None:
    """Give what is complete and flushed the name `path`, in place of what is there.

    Where one of the two is a folder, the old one gets a temporary name first, and its own again if the new one cannot
    have it: two renames cannot be one, and readers see it missing between them, but nobody ever sees half of it,
    whenever the process is killed.
    """
    has_folder = temporary.is_dir() or (path.is_dir() and not path.is_symlink())
    is_aside = has_folder and _set_aside(path)
    try:
        temporary.rename(path)
    except OSError:
        if is_aside:
            _aside(path).rename(path)
        raise
    sync_folder(path.parent)
    if is_aside:
        remove(_aside(path))


def withdraw(path: Path) -> None:
    """Remove a file or a folder that is complete, or not at all; a killed process leaves it under a temporary name."""
    if _set_aside(path):
        remove(_aside(path))


def remove_withdrawn(folder: Path) -> None:
    """Remove what processes that were killed left of what they withdrew from a folder."""
    for left in folder.glob(f".*{_WITHDRAWN}"):
        remove(left)


def _set_aside(path: Path) -> bool:
    """Give what is there its temporary name; tell whether there was anything."""
    remove(_aside(path))
    if not (path.exists() or path.is_symlink()):
        return False
    path.rename(_aside(path))
    return True


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}{_WITHDRAWN}")


def sync_folder(folder: Path) -> None:
    """Flush a folder's own entries, so that a rename in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
