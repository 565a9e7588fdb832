"""Options that several commands share: how their text becomes values, and paths are tried before work begins.

Outputs: places that a command will write to, tried before its work begins. A run of hours must not end in a folder
that is not there. What is tried here may still fail later, on a full disk.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from voxload.catalog.places import catalog_path, catalog_url
from voxload.errors import StorageError, UsageError
from voxload.files.pictures import check_drawing
from voxload.readers.store import is_url

AllowOutside = Annotated[
    bool,
    typer.Option(
        "--allow-outside",
        help="Open files outside of the folder that the catalogue or header names them in: you trust its maker.",
    ),
]
"""Whether paths that data name may lead out of their folder."""


def parse_extents(option: str, text: str) -> tuple[int, ...]:
    """Return integers from text such as ``512,512,512``; raises UsageError that names the option."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(option, found=repr(text), expected="integers with commas, such as 512,512,512") from None


def parse_triple(option: str, text: str) -> tuple[int, int, int]:
    """Return one integer per (d, h, w) from text such as ``2,1,1``; raises UsageError that names the option."""
    values = parse_extents(option, text)
    if len(values) != 3:
        raise UsageError(option, found=repr(text), expected="three integers d,h,w, such as 2,2,2")
    return values[0], values[1], values[2]


def parse_names(text: str) -> tuple[str, ...]:
    """Return names from text such as ``omega_m,sigma_8``; none from empty text."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def catalog_at(text: str) -> str:
    """Return the path of a catalogue that is named itself or by its folder, or the URL of one."""
    return catalog_url(text) if is_url(text) else os.fspath(catalog_path(text))


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


def check_picture(option: str, path: Path | None) -> None:
    """Refuse a picture that could not be written, as `check_file` does, or not be drawn: there is no matplotlib."""
    check_file(option, path)
    if path is not None:
        check_drawing(option)


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
