"""Stores: bytes of objects by key, on a file system or behind a URL."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from voxload.errors import DataError
from voxload.readers.remote.objects import Part
from voxload.readers.remote.store import RemoteStore

T = TypeVar("T")
S = TypeVar("S")


def is_url(path: str) -> bool:
    """Tell whether `path` is a URL rather than a file system path."""
    return "://" in path


class Store(Protocol):
    """Objects below one root. All methods may be called from many threads at once."""

    @property
    def lists(self) -> bool:
        """Whether `walk` can tell all objects and their sizes."""
        ...

    def walk(self, prefix: str, *, depth: int) -> Iterator[tuple[str, int]]:
        """Yield key and bytes of all objects below `prefix`, down to `depth` folders below it, in any order."""
        ...

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

    def edge(self, key: str, length: int, *, at_end: bool) -> Part | None:
        """Return the last or the first `length` bytes, all where there are fewer; None when there is no object."""
        ...

    def map(self, ask: Callable[[S], T], items: Iterable[S]) -> list[T]:
        """Return `ask` of each item, at once where answers take long; raises what the first failing item raised."""
        ...


class LocalStore:
    """Files below a folder."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    @property
    def lists(self) -> bool:
        """Whether `walk` can tell all objects and their sizes."""
        return True

    def walk(self, prefix: str, *, depth: int) -> Iterator[tuple[str, int]]:
        """Yield path below the root and bytes of all files below `prefix`; links are followed."""
        left = [(prefix.strip("/"), depth)]
        while left:
            folder, below = left.pop()
            try:
                entries = os.scandir(self._root / folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            with entries:
                for entry in entries:
                    key = f"{folder}/{entry.name}" if folder else entry.name
                    if not entry.is_dir():
                        yield key, entry.stat().st_size
                    elif below:
                        left.append((key, below - 1))

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

    def edge(self, key: str, length: int, *, at_end: bool) -> Part | None:
        """Return the last or the first bytes of a file, or None when there is none."""
        size = self.size(key)
        if size is None:
            return None
        length = min(length, size)
        data = self.read(key, size - length if at_end else 0, length)
        return Part(np.frombuffer(data, np.uint8), size)

    def map(self, ask: Callable[[S], T], items: Iterable[S]) -> list[T]:
        """Return `ask` of each item, one after another."""
        return [ask(item) for item in items]


def open_store(path: str) -> Store:
    """Return the store of a folder or URL."""
    return RemoteStore(path) if is_url(path) else LocalStore(path)


def whole_object(url: str, limit: int) -> bytes | None:
    """Return the object at a URL, or None when there is none; raises DataError, unread, when it has more bytes."""
    part = RemoteStore(url).whole("", limit)
    return None if part is None else part.data.tobytes()


def _whole(data: bytes, path: str, start: int, length: int) -> bytes:
    if len(data) != length:
        raise DataError(
            f"{path}",
            found=f"{len(data)} bytes at {start}",
            expected=f"{length} bytes: the file is cut short",
            remedy="copy or convert it again",
        )
    return data
