"""Stores: bytes of objects by key, on a file system or behind an fsspec URL."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Protocol

import fsspec

from voxload.errors import DataError, UsageError


def is_url(path: str) -> bool:
    """Tell whether `path` is a URL rather than a file system path."""
    return "://" in path


class Store(Protocol):
    """Objects below one root. All methods may be called from many threads at once."""

    def size(self, key: str) -> int | None:
        """Return the bytes of the object `key`, or None when there is none.

        Raises DataError when something other than an object has that name.
        """
        ...

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start`; raises DataError when the object is shorter."""
        ...


class LocalStore:
    """Files below a folder."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def size(self, key: str) -> int | None:
        """Return the bytes of a file, or None when there is none."""
        try:
            status = (self._root / key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{self._root / key}", found="a folder or device", expected="a file")
        return status.st_size

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return a range of a file."""
        with (self._root / key).open("rb") as file:
            file.seek(start)
            return _whole(file.read(length), f"{self._root / key}", start, length)


class FsspecStore:
    """Objects below a URL that fsspec understands."""

    def __init__(self, url: str) -> None:
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(f"{url}", found=str(error), remedy='pip install "voxload[remote]"') from error

    def size(self, key: str) -> int | None:
        """Return the bytes of an object, or None when there is none."""
        try:
            details = self._files.info(f"{self._root}/{key}")
        except FileNotFoundError:
            return None
        if details["type"] != "file":
            raise DataError(f"{self._root}/{key}", found=f"a {details['type']}", expected="an object")
        return int(details["size"])

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return a range of an object."""
        path = f"{self._root}/{key}"
        return _whole(bytes(self._files.cat_file(path, start=start, end=start + length)), path, start, length)


def open_store(path: str) -> Store:
    """Return the store of a folder or URL."""
    return FsspecStore(path) if is_url(path) else LocalStore(path)


def _whole(data: bytes, path: str, start: int, length: int) -> bytes:
    if len(data) != length:
        raise DataError(
            f"{path}",
            found=f"{len(data)} bytes at {start}",
            expected=f"{length} bytes",
            remedy="the file is truncated: copy or convert it again",
        )
    return data
