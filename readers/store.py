"""Stores: bytes of objects by key, on a file system or behind an fsspec URL."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Protocol

import fsspec

from voxload.errors import DataError, StorageError, UsageError
from voxload.readers.faults import REMOTE_ERRORS, storage_error

_GONE = (404, 410)
"""HTTP statuses that say that there is no such object."""


def is_url(path: str) -> bool:
    """Tell whether `path` is a URL rather than a file system path."""
    return "://" in path


class Store(Protocol):
    """Objects below one root. All methods may be called from many threads at once."""

    def locate(self, key: str) -> str:
        """Return the full name of the object `key`, for messages."""
        ...

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

    def locate(self, key: str) -> str:
        """Return the path of a file."""
        return f"{self._root / key}"

    def size(self, key: str) -> int | None:
        """Return the bytes of a file, or None when there is none."""
        try:
            status = (self._root / key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):
            raise DataError(self.locate(key), found="a folder or device", expected="a file")
        return status.st_size

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return a range of a file."""
        # Unbuffered: a buffer would read up to its own size beyond the range.
        with (self._root / key).open("rb", buffering=0) as file:
            file.seek(start)
            return _whole(file.read(length), self.locate(key), start, length)


class FsspecStore:
    """Objects below a URL that fsspec understands."""

    def __init__(self, url: str) -> None:
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(f"{url}", found=str(error), remedy='pip install "voxload[remote]"') from error

    def locate(self, key: str) -> str:
        """Return the path of an object in its file system."""
        return f"{self._root}/{key}"

    def size(self, key: str) -> int | None:
        """Return the bytes of an object, or None when there is none.

        Raises StorageError when the server refuses to say.
        """
        try:
            details = self._files.info(self.locate(key))
        except FileNotFoundError as error:
            # fsspec calls every failing HTTP request a missing file, and keeps the true reason as the cause.
            cause = error.__cause__
            if isinstance(cause, REMOTE_ERRORS) and getattr(cause, "status", None) not in _GONE:
                raise storage_error(self.locate(key), cause) from error
            return None
        if details["type"] != "file":
            raise DataError(self.locate(key), found=f"a {details['type']}", expected="an object")
        if details["size"] is None:
            raise StorageError(self.locate(key), found="no size", expected="a server that gives sizes")
        return int(details["size"])

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return a range of an object."""
        path = self.locate(key)
        return _whole(bytes(self._files.cat_file(path, start=start, end=start + length)), path, start, length)


def open_store(path: str) -> Store:
    """Return the store of a folder or URL."""
    return FsspecStore(path) if is_url(path) else LocalStore(path)


def _whole(data: bytes, path: str, start: int, length: int) -> bytes:
    if len(data) != length:
        raise DataError(
            f"{path}",
            found=f"{len(data)} bytes at {start}",
            expected=f"{length} bytes: the file is cut short",
            remedy="copy or convert it again",
        )
    return data
