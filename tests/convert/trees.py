"""Trees: what a folder holds, to compare two conversions bit for bit."""

from __future__ import annotations

from pathlib import Path


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder and of the folders in it, hidden ones too, by its path there."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
