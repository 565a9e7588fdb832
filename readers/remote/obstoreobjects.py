"""ObstoreObjects: S3, Google Cloud Storage, Azure and plain HTTP through obstore."""

from __future__ import annotations

import os
import re
import threading
import urllib.parse
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

from voxload.errors import DataError, StorageError, UsageError
from voxload.readers.remote.objects import ChangedError, Facts, Part, Traffic, TransientError, UnreachableError
from voxload.readers.remote.retries import RetryPolicy

if TYPE_CHECKING:  # these names are there for type checkers only
    from obstore.store import ObjectStore, RetryConfig

T = TypeVar("T")

_STORES: dict[str, Callable[..., ObjectStore]] = {
    "s3": S3Store,
    "s3a": S3Store,
    "gs": GCSStore,
    "az": AzureStore,
    "abfs": AzureStore,
    "abfss": AzureStore,
}
"""Stores by the schemes of their URLs; plain HTTP needs no bucket's name."""

_STATUS = re.compile(r"status code: (\d{3})")
_QUERY = re.compile(r"\?\S+")
_GONE = 410
_BEYOND = 416
_BUSY = frozenset({408, 425, 429, *range(500, 600)})
"""Statuses that say: later. RFC 9110, RFC 8470 and RFC 6585."""
_NO_RANGES = ("Range request not supported", "non-partial response")
_UNREACHED = ("connection refused", "dns error", "failed to lookup address", "no route to host")
"""What obstore says in words of an address at which nothing is."""
_NO_RETRIES: RetryConfig = {"max_retries": 0, "retry_timeout": timedelta(minutes=1)}


class ObstoreObjects:
    """Objects below one URL; see the Objects contract.

    Credentials, regions and endpoints come from the environment variables that obstore documents, read when the
    process first opens the bucket. Clients, with their connections, are shared by all readers of a bucket.

    Parameters
    ----------
    url
        Of S3, Google Cloud Storage, Azure or plain HTTP.
    retries
        How long to wait.
    traffic
        Where requests are counted.
    """

    needs_threads = False
    """obstore's threads are none of Python's."""

    def __init__(self, url: str, retries: RetryPolicy, traffic: Traffic) -> None:
        self._traffic = traffic
        parts = urllib.parse.urlsplit(url)
        if not parts.netloc:
            raise UsageError(url, found="no bucket or server", expected=f"{parts.scheme}://NAME/...")
        self._url = url.rstrip("/")
        self._is_http = parts.scheme in ("http", "https")
        path = urllib.parse.unquote(parts.path) if self._is_http else parts.path
        self._prefix = path.strip("/")
        self._root = f"{parts.scheme}://{parts.netloc}"
        self._store = _client(self._root, retries)

    def locate(self, key: str) -> str:
        """Return the URL of an object."""
        return f"{self._url}/{key}" if key else self._url

    def size(self, key: str) -> int | None:
        """Return the bytes of an object, or None when there is none."""
        found = self.facts(key)
        return None if found is None else found.size

    def facts(self, key: str) -> Facts | None:
        """Return what is told of an object without its bytes, or None when there is none."""
        found = self._answer(key, lambda path: obstore.head(self._store, path))
        if found is None:
            return None
        return Facts.told(self._url, int(found["size"]), _version(found), _modified(found))

    def whole(self, key: str, limit: int | None) -> Part | None:
        """Return an object, or None when there is none."""

        def get(path: str) -> Part:
            result = obstore.get(self._store, path)
            size = result.meta["size"]
            if limit is not None and size > limit:
                raise DataError(self.locate(key), found=f"{size} bytes", expected=f"at most {limit}")
            return _part(result)

        return self._answer(key, get)

    def span(self, key: str, start: int, stop: int, version: str) -> Part | None:
        """Return the bytes from `start` to `stop`."""
        options: dict[str, Any] = {"range": (start, stop)}
        if version.startswith('"'):  # others are weak, or no entity tags, and match nothing (RFC 9110, 13.1.1)
            options["if_match"] = version

        def get(path: str) -> Part:
            result = obstore.get(self._store, path, options=options)  # type: ignore[arg-type] # a TypedDict
            part = _part(result)
            if result.range[0] != start:
                raise StorageError(self.locate(key), found=f"bytes from {result.range[0]}", expected=f"from {start}")
            if version not in ("", part.version):
                raise ChangedError
            return part

        return self._answer(key, get)

    def tail(self, key: str, length: int) -> Part | None:
        """Return the last `length` bytes; in one request, but on Azure, which knows no ranges from the end, in two."""
        if isinstance(self._store, AzureStore):
            size = self.size(key)
            if not size:
                return None if size is None else Part(np.empty(0, np.uint8), 0)
            return self.span(key, max(0, size - length), size, "")
        return self._answer(
            key, lambda path: _part(obstore.get(self._store, path, options={"range": {"suffix": length}}))
        )

    def names(self, prefix: str) -> list[str]:
        """Return the names directly below `prefix`; none over plain HTTP, which has no listings."""
        if self._is_http:
            return []

        def listed(path: str) -> list[str]:
            found = obstore.list_with_delimiter(self._store, path)
            below = [*found["common_prefixes"], *(item["path"] for item in found["objects"])]
            return sorted({name.rstrip("/").rsplit("/", 1)[-1] for name in below})

        return self._answer(prefix, listed) or []

    def _answer(self, key: str, ask: Callable[[str], T]) -> T | None:
        """Send one request; None when there is no such object."""
        _check_process(self._url)
        path = "/".join(part for part in (self._prefix, key.strip("/")) if part)
        self._traffic.add(requests=1)
        try:
            found = ask(path)
        except FileNotFoundError:
            _reached.add(self._root)
            return None
        except PreconditionError as error:
            raise ChangedError from error
        except (BaseError, OSError, ValueError) as error:
            if isinstance(error, StorageError | DataError):
                raise
            status = _status(error)
            if status is not None:
                _reached.add(self._root)
            if status == _GONE:
                return None
            raise self._failure(key, error, status) from error
        _reached.add(self._root)
        return found

    def _failure(self, key: str, error: Exception, status: int | None) -> Exception:
        """Return the error to raise for one of obstore, which tells most of what it knows in words."""
        text = _QUERY.sub("?...", str(error).partition("\n")[0])
        if any(words in text for words in _NO_RANGES):
            return StorageError(
                self.locate(key),
                found="a server that ignores byte ranges and sends whole files",
                expected="a server that knows them",
                remedy="copy the data to an object store, or to a disk",
            )
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            remedy = "check the credentials in the environment, and that they allow to read it"
            return StorageError(self.locate(key), found=text, expected="permission to read", remedy=remedy)
        if status == _BEYOND:
            return DataError(self.locate(key), found="no such bytes", expected="an object that is not cut short")
        if self._root not in _reached and any(words in str(error).lower() for words in _UNREACHED):
            return UnreachableError(text)
        if status in _BUSY or (status is None and "HTTP error" in text and "builder error" not in text):
            return TransientError(text)
        return StorageError(self.locate(key), found=text, remedy="check URL, credentials, region and endpoint")


def _part(result: Any) -> Part:
    """Return the answer to a GET; reads its body."""
    meta = result.meta
    data = np.frombuffer(result.bytes(), np.uint8)
    start, stop = result.range
    if data.size != stop - start:
        raise TransientError(f"{data.size} bytes instead of {stop - start}")
    return Part(data, int(meta["size"]), _version(meta), _modified(meta))


def _version(meta: Any) -> str:
    """Return the entity tag of an object, or where there is none the time at which it was written."""
    return meta.get("e_tag") or (f"{meta['last_modified']}" if meta.get("last_modified") else "")


def _modified(meta: Any) -> float | None:
    """Return when an object was written; where a server does not tell, obstore says 1970."""
    return meta["last_modified"].timestamp() or None if meta.get("last_modified") else None


def _status(error: Exception) -> int | None:
    found = _STATUS.search(str(error))
    return int(found.group(1)) if found else None


_reached: set[str] = set()
"""Buckets and servers that have answered this process, be it with an error; only ever added to."""
_clients: dict[tuple[str, RetryPolicy], ObjectStore] = {}
_opening = threading.Lock()
_is_useless = False
"""Whether obstore's threads stayed behind in the process that this one was forked from."""


def _client(root: str, retries: RetryPolicy) -> ObjectStore:
    """Return the client of a bucket or server, opened once in a process."""
    _check_process(root)
    with _opening:
        if (root, retries) not in _clients:
            scheme, _, name = root.partition("://")
            seconds = {
                "connect_timeout": f"{retries.connect}s",
                "read_timeout": f"{retries.silence}s",
                "timeout": f"{retries.request}s",
            }
            try:
                if scheme in ("http", "https"):
                    options: Any = {**seconds, "allow_http": scheme == "http"}
                    opened: ObjectStore = HTTPStore(root, client_options=options, retry_config=_NO_RETRIES)
                else:
                    # Not as client options, which would replace those that the environment sets, such as a proxy.
                    opened = _STORES[scheme](name, config=seconds, retry_config=_NO_RETRIES)
            except (BaseError, ValueError) as error:
                text = str(error).partition("\n")[0]
                raise UsageError(root, found=text, remedy="check URL and environment variables") from error
            _clients[root, retries] = opened
        return _clients[root, retries]


def _check_process(subject: str) -> None:
    """Refuse to go on where obstore would wait for ever for threads that a fork left behind.

    Worse: what a child does with their event queue, which it shares with its parent, ends the parent.
    """
    if _is_useless:
        raise UsageError(
            subject,
            found="a process that was forked from one that had read from such storage",
            expected="a process of its own",
            remedy='start workers with multiprocessing_context="forkserver" or "spawn"',
        )


def _forget() -> None:
    """Note in a forked child that the clients are none of its own; they are kept, as to drop one would touch them."""
    global _is_useless, _opening
    _is_useless, _opening = bool(_clients) or _is_useless, threading.Lock()


os.register_at_fork(after_in_child=_forget)
