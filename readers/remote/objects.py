"""Objects: the few requests that a remote storage must answer, each sent once, and counted as traffic."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Protocol

from voxload.readers.scratch import Bytes


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of an object, and what the answer said of it."""

    data: Bytes
    """The bytes; read-only."""
    size: int
    """Bytes of the whole object."""
    version: str = ""
    """What differs once the object was written again; empty where the storage tells nothing."""
    modified: float | None = None
    """When it was last written to, in seconds since 1970; None where the storage does not tell."""


STRONG_SCHEMES = frozenset({"s3", "s3a", "gs", "az", "abfs", "abfss"})
"""Storages that never give two contents of an object one entity tag. Web servers make theirs of size and time."""
_STRONG = ('"', 'ETag="', 'etag="')
"""How versions begin that differ whenever the bytes do (RFC 9110, section 8.8.1), of obstore and of fsspec."""
_YOUNG = 60.0
"""Seconds. Web servers' times may be in whole seconds, and their clocks differ from this one; a tag that is made of
such a time is as good as its claim once the time is a minute past (RFC 9110, section 8.8.2.2)."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a storage tells of an object without its bytes."""

    size: int
    """Its bytes."""
    version: str
    """As in `Part`."""
    is_settled: bool
    """Whether the object has another version if it is written again from the moment on when this was told."""

    @classmethod
    def told(cls, url: str, size: int, version: str, modified: float | None) -> Facts:
        """Return what was told just now of the object at a URL; `modified` is in seconds since 1970."""
        is_settled = url.partition("://")[0] in STRONG_SCHEMES or modified is None or modified <= time.time() - _YOUNG
        return cls(size, version, is_settled)

    @property
    def is_strong(self) -> bool:
        """Whether the storage says that versions differ whenever the bytes do."""
        return self.version.startswith(_STRONG)

    @property
    def text(self) -> str:
        """What tells the object from itself once it was written again."""
        return f"{self.size} {self.version}"


class TransientError(Exception):
    """A request failed in a way that may be over the next time: a lost connection, silence, a busy server."""


class UnreachableError(TransientError):
    """Nothing answers, nor ever has in this process: more likely a wrong address than a storage in trouble."""


class ChangedError(Exception):
    """The object is not the one that was asked for: it was written again."""


class Objects(Protocol):
    """Objects below one URL; all methods may be called from many threads at once.

    Each call is one attempt and, where the storage allows, one request. It raises TransientError where another
    attempt may succeed, DataError for something that is no object, and StorageError for everything else.
    """

    needs_threads: bool
    """Whether other threads of Python's than the caller's may be needed to answer a request."""

    def locate(self, key: str) -> str:
        """Return the full name of an object, for messages; of the empty key, the URL itself, which may be one too."""
        ...

    def size(self, key: str) -> int | None:
        """Return the bytes of an object, or None when there is none."""
        ...

    def facts(self, key: str) -> Facts | None:
        """Return what is told of an object without its bytes, or None when there is none."""
        ...

    def whole(self, key: str, limit: int | None) -> Part | None:
        """Return an object, or None when there is none; raises DataError, unread, when it is longer than `limit`."""
        ...

    def span(self, key: str, start: int, stop: int, version: str) -> Part | None:
        """Return the bytes from `start` to `stop`, fewer where the object ends; None when there is no object.

        Raises ChangedError when `version` is given and the object has another one.
        """
        ...

    def tail(self, key: str, length: int) -> Part | None:
        """Return the last `length` bytes, or all where there are fewer; None when there is no object."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Return the names directly below `prefix`; none where the storage has no such prefix or cannot list."""
        ...


@dataclass(frozen=True, slots=True)
class Counts:
    """Traffic at one moment."""

    requests: int = 0
    """Requests sent, the repeated ones too."""
    retries: int = 0
    """Requests that repeat one that failed."""
    bytes: int = 0
    """Bytes of objects that arrived."""

    def __sub__(self, earlier: Counts) -> Counts:
        return Counts(self.requests - earlier.requests, self.retries - earlier.retries, self.bytes - earlier.bytes)


class Traffic:
    """Counts requests; safe to use from many threads at once.

    Nothing is made while the lock is held, so that no collection of garbage begins there: at an h5py object it would
    wait for h5py's lock, whose holder may be waiting to count a request.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = self._retries = self._bytes = 0

    def add(self, *, requests: int = 0, retries: int = 0, size: int = 0) -> None:
        """Count requests, repeated ones, and bytes that arrived."""
        with self._lock:
            self._requests += requests
            self._retries += retries
            self._bytes += size

    def counts(self) -> Counts:
        """Return what was counted so far; the difference of two is the traffic between them."""
        with self._lock:
            requests, retries, size = self._requests, self._retries, self._bytes
        return Counts(requests, retries, size)

    def __str__(self) -> str:
        now = self.counts()
        return f"{now.requests} requests, {now.retries} of them repeated, {now.bytes} bytes"
