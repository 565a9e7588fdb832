"""relocate: a catalogue's paths, rewritten for a catalogue in another folder, so that they name the same files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from voxload.catalogs.rows import Rows
from voxload.readers.storage.traversal import leaves
from voxload.readers.store import is_url

PATHS = ("path", "checksums")
"""Columns that hold paths."""


def relocated(rows: Rows, folder: Path) -> Rows:
    """Return the rows as they must stand in a catalogue in `folder`; absolute paths and URLs stay as they are."""
    if folder.resolve() == rows.folder.resolve():
        return replace(rows, folder=folder)
    moved = _mover(rows.folder, folder)
    for column in PATHS:
        rows = rows.with_column(column, [moved(path) for path in _named(rows, column)])
    return replace(rows, folder=folder)


def names_outside(rows: Rows) -> bool:
    """Tell whether paths lead out of the catalogue's folder; such a catalogue is read where that is allowed."""
    return any(leaves(path) for column in PATHS for path in dict.fromkeys(rows.strings(column)))


def resolved(rows: Rows, column: str) -> list[str]:
    """Return where the paths of a column really lie; no path and URLs stay as they are."""
    real = lru_cache(os.path.realpath)
    base = os.fspath(rows.folder)
    return [
        path if not path or is_url(path) else os.path.join(real(os.path.join(base, parent)), name)  # noqa: PTH118
        for path in _named(rows, column)
        for parent, name in [os.path.split(path.rstrip("/"))]
    ]


def _named(rows: Rows, column: str) -> list[str]:
    """Return the paths of a column; an empty one of a volume is the folder itself, one of checksums is none."""
    return [path or "." for path in rows.strings(column)] if column == "path" else rows.strings(column)


def _mover(old: Path, new: Path) -> Callable[[str], str]:
    """Return what rewrites a path relative to `old` as one relative to `new`.

    Strings, for a path object of each of 262,144 rows takes seconds. Both folders are taken without links: with
    ``..`` behind a link the system goes up from where the link leads to.
    """
    way = os.path.relpath(os.path.realpath(old), os.path.realpath(new))

    def moved(path: str) -> str:
        if not path or is_url(path) or os.path.isabs(path):  # noqa: PTH117
            return path
        if _goes_back(path):
            return os.path.join(way, path)  # noqa: PTH118 - as it is, for only the system knows where that leads
        return os.path.normpath(os.path.join(way, path))  # noqa: PTH118

    return lru_cache(maxsize=None)(moved)


def _goes_back(path: str) -> bool:
    """Tell whether a path goes down and up again, perhaps through a link."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    downs = [place for place, part in enumerate(parts) if part != ".."]
    return bool(downs) and ".." in parts[downs[0] :]
