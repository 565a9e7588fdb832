"""FsspecObjects: every other URL that fsspec understands."""

from __future__ import annotations

import ftplib
import http.client
from collections.abc import Callable
from typing import Any, TypeVar

import fsspec
import numpy as np

from voxload.errors import DataError, StorageError, UsageError
from voxload.readers.faults import remote_errors, storage_error
from voxload.readers.remote.objects import ChangedError, Facts, Part, Traffic, TransientError

T = TypeVar("T")

_GONE = (404, 410)
"""HTTP statuses that say that there is no such object."""
_BUSY = frozenset({408, 425, 429, *range(500, 600)})
_LOST: tuple[type[Exception], ...] = (EOFError, http.client.HTTPException, ftplib.error_temp)
"""A connection that was lost, besides what is raised when one fails."""
_THREADLESS = frozenset({"file", "local", "memory", "ftp"})
"""What is known to do all its work in the calling thread. fsspec's asynchronous file systems, and those over SSH, have
threads that do."""
_STAMPS = ("ETag", "etag", "LastModified", "last_modified", "modify", "mtime", "created", "ino", "size")
"""What file systems tell of an object that differs once it was written again."""


class FsspecObjects:
    """Objects below one URL; see the Objects contract.

    Sizes and versions are asked for in calls of their own, which are counted as requests. A version is compared after
    the bytes were read.

    Raises UsageError when fsspec does not know the URL, or lacks a package for it.
    """

    def __init__(self, url: str, traffic: Traffic) -> None:
        self._traffic = traffic
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            remedy = "install the package that fsspec needs for it"
            raise UsageError(url, found=str(error), expected="a URL that fsspec knows", remedy=remedy) from error
        self._url = url.rstrip("/")
        self.needs_threads = not all(link.partition("://")[0] in _THREADLESS for link in url.split("::"))

    def locate(self, key: str) -> str:
        """Return the URL of an object."""
        return f"{self._url}/{key}" if key else self._url

    def size(self, key: str) -> int | None:
        """Return the bytes of an object, or None when there is none."""
        details = self._details(key)
        return None if details is None else int(details["size"])

    def facts(self, key: str) -> Facts | None:
        """Return what is told of an object without its bytes, or None when there is none."""
        details = self._details(key)
        return None if details is None else Facts.told(self._url, int(details["size"]), _version(details), None)

    def whole(self, key: str, limit: int | None) -> Part | None:
        """Return an object, or None when there is none."""
        details = self._details(key)
        if details is None:
            return None
        size = int(details["size"])
        if limit is not None and size > limit:
            raise DataError(self.locate(key), found=f"{size} bytes", expected=f"at most {limit}")
        return self._read(key, 0, size, details)

    def span(self, key: str, start: int, stop: int, version: str) -> Part | None:
        """Return the bytes from `start` to `stop`, checked afterwards to be of `version`."""
        details = None if version else self._details(key)
        if not version and details is None:
            return None
        size = stop if details is None else int(details["size"])
        part = self._read(key, start, min(stop, size), details or {})
        if version and part is not None:
            now = self._details(key)
            if now is None or _version(now) != version:
                raise ChangedError
        return part

    def tail(self, key: str, length: int) -> Part | None:
        """Return the last `length` bytes."""
        details = self._details(key)
        if details is None:
            return None
        size = int(details["size"])
        return self._read(key, max(0, size - length), size, details)

    def names(self, prefix: str) -> list[str]:
        """Return the names directly below `prefix`."""
        path = self._path(prefix).rstrip("/")
        found = self._answer(prefix, lambda: self._files.ls(path, detail=False))
        return sorted({name.rstrip("/").rsplit("/", 1)[-1] for name in found or [] if name.rstrip("/") != path})

    def _details(self, key: str) -> dict[str, Any] | None:
        """Return what the file system says of an object now, or None when there is none."""
        path = self._path(key)
        self._files.invalidate_cache(self._files._parent(path))  # noqa: SLF001 - fsspec's own way to name a folder
        details: dict[str, Any] | None = self._answer(key, lambda: self._files.info(path))
        if details is None:
            return None
        if details["type"] != "file":
            raise DataError(self.locate(key), found=f"a {details['type']}", expected="an object")
        if details["size"] is None:
            raise StorageError(self.locate(key), found="no size", expected="a server that gives sizes")
        return details

    def _read(self, key: str, start: int, stop: int, details: dict[str, Any]) -> Part | None:
        """Return bytes of an object; `details` are the file system's, or nothing."""
        if start >= stop:
            return Part(np.empty(0, np.uint8), int(details.get("size", 0)), _version(details))
        data = self._answer(key, lambda: self._files.cat_file(self._path(key), start=start, end=stop))
        if data is None:
            return None
        if len(data) > stop - start:
            raise StorageError(
                self.locate(key),
                found="a server that ignores byte ranges and sends whole files",
                expected="a server that knows them",
                remedy="copy the data to an object store, or to a disk",
            )
        if len(data) < stop - start:
            raise TransientError(f"{len(data)} bytes instead of {stop - start}")
        return Part(np.frombuffer(data, np.uint8), int(details.get("size", stop)), _version(details))

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}" if self._root and key else self._root or key

    def _answer(self, key: str, ask: Callable[[], T]) -> T | None:
        """Call the file system once; None when there is no such object."""
        self._traffic.add(requests=1)
        try:
            return ask()
        except FileNotFoundError as error:
            # fsspec calls every failing HTTP request a missing file, and keeps the true reason as the cause.
            cause = error.__cause__
            if isinstance(cause, remote_errors()) and getattr(cause, "status", None) not in _GONE:
                raise self._failure(key, cause) from error
            return None
        except NotADirectoryError:
            return None
        except (*remote_errors(), *_LOST) as error:
            raise self._failure(key, error) from error

    def _failure(self, key: str, error: BaseException) -> Exception:
        status = getattr(error, "status", None)
        if status is None or status in _BUSY:
            return TransientError(f"{type(error).__name__}: {error}".strip(": "))
        return storage_error(self.locate(key), error)


def _version(details: dict[str, Any]) -> str:
    return " ".join(f"{name}={details[name]}" for name in _STAMPS if details.get(name) is not None)
