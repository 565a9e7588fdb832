"""Places: a catalogue's folder, or the URL of one, and where the paths of its rows lead from there.

A catalogue behind a URL names what lies below that URL. Nothing on the far side is listed: each volume is asked for by
the name that its row has.
"""

from __future__ import annotations

import os
from pathlib import Path

from voxload.errors import NotFoundError, UsageError
from voxload.files.limits import TABLE
from voxload.readers.storage.traversal import is_within, leaves
from voxload.readers.store import is_url, whole_object

Folder = Path | str
"""A folder, or a URL without a slash at its end."""
CATALOG_NAME = "catalog.parquet"
"""File name of the catalogue in a converted folder."""
_LOCAL = frozenset({"file", "local"})
"""Schemes of files, whose paths may be links: paths are followed by their own rules."""


def catalog_path(path: str | os.PathLike[str]) -> Path:
    """Return the catalogue that a path names, itself or by its folder.

    Raises UsageError for a URL: who asks writes beside it.
    """
    path = Path(path)
    if path.parts and path.parts[0].endswith(":") and not path.exists():  # a path of pathlib's has lost a slash of two
        raise UsageError(f"catalogue {path}", found="a URL", expected="a path", remedy="copy the catalogue first")
    return path / CATALOG_NAME if path.is_dir() else path


def catalog_url(url: str) -> str:
    """Return the URL of the catalogue that a URL names, itself or by its folder.

    Raises UsageError for the URL of a file of this machine.
    """
    if url.partition("://")[0] in _LOCAL:
        raise UsageError(url, found="a URL of a file", expected="a path", remedy="leave file:// out")
    return url if url.endswith(".parquet") else f"{url.rstrip('/')}/{CATALOG_NAME}"


def folder_of(url: str) -> str:
    """Return the URL of the folder that a catalogue lies in."""
    return url.rpartition("/")[0]


def fetched(url: str) -> bytes:
    """Return a table that is behind a URL, whole.

    Raises
    ------
    NotFoundError
        When there is none.
    UsageError
        When the extra ``remote`` is not installed, or the URL is of a kind that is not opened.
    DataError
        When it is larger than a table may be.
    StorageError
        When the storage does not give it.
    """
    data = whole_object(url, TABLE.allowed)
    if data is None:
        raise NotFoundError(f"catalogue {url}", found="no such object", remedy="check the URL")
    return data


def place_of(root: Folder, path: str) -> str:
    """Return where a path of a catalogue leads: itself where it is a URL or begins at the root, else below `root`.

    >>> place_of("https://host/data", "a.zarr"), place_of(Path("/data"), "a.zarr"), place_of("s3://b/c", "s3://d/e")
    ('https://host/data/a.zarr', '/data/a.zarr', 's3://d/e')
    """
    if is_url(path) or os.path.isabs(path):  # noqa: PTH117 - what has no pathlib form
        return path
    if isinstance(root, Path):
        return os.fspath(root / path)
    inner = os.path.normpath(path)
    return root if inner == "." else f"{root}/{inner}"


def is_outside(root: Folder, path: str) -> bool:
    """Tell whether a path of a catalogue leads out of its folder, by what it says."""
    if not leaves(path):
        return False
    return isinstance(root, str) or not is_within(os.path.join(root, path), os.fspath(root))  # noqa: PTH118 - may be a URL
