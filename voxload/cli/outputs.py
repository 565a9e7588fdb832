"""Outputs: places that a command will write to, tried before its work begins.

A run of hours must not end in a folder that is not there. What is tried here may still fail later, on a full disk.
"""

from __future__ import annotations

import os
from pathlib import Path

from voxload.errors import StorageError, UsageError


def check_file(option: str, path: Path | None) -> None:
    """Refuse a file that could not be written: its folder is missing or closed to us, or the name is a folder's.

    `option` is what the caller calls it; None is no file. Raises UsageError, and StorageError without permission.
    """
    if path is None:
        return
    folder = path.absolute().parent
    if path.is_dir():
        raise UsageError(option, found=f"{path}, a folder", expected="a file's name", remedy=f"say {path / 'NAME'}")
    if not folder.is_dir():
        found = f"no folder {path.parent}" if not folder.exists() else f"{path.parent}, which is no folder"
        raise UsageError(option, found=found, expected="a folder that is there", remedy="make it, or choose another")
    _check_writable(option, folder)


def check_folder(option: str, path: Path | None) -> None:
    """Refuse a folder that could neither be made nor written to, as `check_file` does."""
    if path is None:
        return
    place = path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise UsageError(option, found=f"{place}, which is no folder", expected="a folder", remedy="choose another")
    _check_writable(option, place)


def _check_writable(option: str, folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(option, found=f"no permission to write to {folder}", remedy="choose another folder")
