"""RemoteStore: objects behind a URL of a kind that is opened, each request counted, and repeated where that may help.

Schemes: which kinds of URLs are opened, before any library looks at one. fsspec's URLs can do more than name an
object: they chain file systems, and some of these run programs, follow what a file at the far end says, or read with
the rights of another service. A URL may come out of a stranger's file, so only plain storages are opened unless the
user names others in the environment.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar, cast

import numpy as np

from voxload.errors import DataError, UsageError
from voxload.readers.remote.fetchers import fetchers
from voxload.readers.remote.objects import ChangedError, Facts, Objects, Part, Traffic
from voxload.readers.remote.retries import RetryPolicy, retried
from voxload.readers.remote.zarrstores import SCHEME, ZarrStoreObjects
from voxload.readers.scratch import Bytes

SCHEMES_VARIABLE = "VOXLOAD_URL_SCHEMES"
"""Environment variable with further schemes, by commas: of storages, and of what a chain of URLs begins with."""
OBSTORE = frozenset({"s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https"})
"""What obstore serves, which knows no chains."""
FSSPEC = frozenset({"file", "local", "memory", "ftp", "sftp", "ssh", "gcs", "hdfs", "webhdfs", "oss", "hf"})
"""What is opened through fsspec: each reads the object that the URL names, and nothing else."""
_CHAIN = "::"


def check_scheme(url: str) -> None:
    """Refuse a URL whose scheme, or one of whose schemes where it is a chain, is not one of those that are opened.

    Raises UsageError. Source: fsspec, features, "URL chaining": each link but the last wraps those behind it.
    """
    if url.partition("://")[0] in OBSTORE:
        return
    further = {name.strip() for name in os.environ.get(SCHEMES_VARIABLE, "").split(",")} - {""}
    *wrapping, last = (link.partition("://")[0] for link in url.split(_CHAIN))
    known = FSSPEC | OBSTORE | further
    odd = next((name for name in wrapping if name not in further), None) or (last if last not in known else None)
    if odd is None:
        return
    chain = "a chain of URLs that begins with " if wrapping else "scheme "
    raise UsageError(
        url,
        found=f"{chain}{odd!r}",
        expected=f"one URL of {', '.join(sorted(OBSTORE | FSSPEC))}",
        remedy=f"if you trust whoever wrote it, name the scheme in the environment variable {SCHEMES_VARIABLE}",
    )


T = TypeVar("T")
S = TypeVar("S")

_NEEDED = ("obstore", "stamina")
RETRIES = RetryPolicy()


class RemoteStore:
    """Objects below one URL; see the Store contract. Safe to use from many threads at once.

    Attributes
    ----------
    traffic
        What was asked of the storage through this store.
    seen
        What was told of the objects that describe a hierarchy, when they were read last.

    Parameters
    ----------
    url
        Of a scheme that is opened, see `voxload.readers.remote.store`.
    retries
        How often, and for how long, to try.

    Raises
    ------
    UsageError
        When the extra `remote` is not installed, or the URL is of a kind that is not opened.
    """

    def __init__(self, url: str, retries: RetryPolicy | None = None) -> None:
        if not all(importlib.util.find_spec(name) for name in _NEEDED):
            raise UsageError(url, found="a URL", expected="a file or folder", remedy='pip install "voxload[remote]"')
        self._retries = retries or RETRIES
        self.traffic = Traffic()
        self.seen: dict[str, Facts] = {}
        self._objects = _open(url, self._retries, self.traffic)

    @property
    def lists(self) -> bool:
        """Whether `walk` can tell all objects and their sizes: never, for many storages cannot."""
        return False

    def walk(self, prefix: str, *, depth: int) -> Iterator[tuple[str, int]]:
        """Refuse; see `lists`."""
        raise NotImplementedError(prefix, depth)

    @property
    def needs_threads(self) -> bool:
        """Whether other threads of Python's than the caller's may be needed to answer a request."""
        return self._objects.needs_threads

    def locate(self, key: str) -> str:
        """Return the URL of an object; the empty key is that of an object that has the store's own URL."""
        return self._objects.locate(key)

    def size(self, key: str) -> int | None:
        """Return the bytes of an object, or None when there is none."""
        return self._ask(key, partial(self._objects.size, key))

    def facts(self, key: str) -> Facts | None:
        """Return what is told of an object without its bytes, or None when there is none; one request."""
        return self._ask(key, partial(self._objects.facts, key))

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start`."""
        return self.span(key, start, start + length, "").tobytes()

    def whole(self, key: str, limit: int | None = None) -> Part | None:
        """Return an object, or None when there is none; DataError when it has more than `limit` bytes."""
        return self._counted(self._ask(key, partial(self._objects.whole, key, limit)))

    def span(self, key: str, start: int, stop: int, version: str) -> Bytes:
        """Return the bytes from `start` to `stop` of an object that is there.

        Raises DataError when they are not all there, or the object is not `version` any more.
        """
        if start == stop:  # HTTP has no ranges without bytes
            return np.empty(0, np.uint8)
        try:
            part = self._counted(self._ask(key, partial(self._objects.span, key, start, stop, version)))
        except ChangedError as error:
            raise DataError(
                self.locate(key),
                found="an object that changed since it was opened",
                expected="the object as it was",
                remedy="open it again when its writer has finished",
            ) from error
        found = 0 if part is None else part.data.size
        if part is None or found != stop - start:
            expected = f"{stop - start}: the object was removed or cut short"
            raise DataError(self.locate(key), found=f"{found} bytes at {start}", expected=expected)
        return part.data

    def edge(self, key: str, length: int, *, at_end: bool) -> Part | None:
        """Return the last or the first `length` bytes, all where there are fewer; None when there is no object."""
        ask = partial(self._objects.tail, key, length) if at_end else partial(self._objects.span, key, 0, length, "")
        return self._counted(self._ask(key, ask))

    def names(self, prefix: str) -> list[str]:
        """Return the names directly below `prefix`; none where the storage cannot list."""
        return self._ask(prefix, partial(self._objects.names, prefix))

    def map(self, ask: Callable[[S], T], items: Iterable[S]) -> list[T]:
        """Return `ask` of each item, as many at once as the process has requests in flight.

        Raises what the first failing item raised; those that have not begun are dropped. Not to be called by `ask`.
        """
        futures = [fetchers().submit(ask, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def _ask(self, key: str, call: Callable[[], T]) -> T:
        return retried(call, subject=self.locate(key), retries=self._retries, traffic=self.traffic)

    def _counted(self, part: Part | None) -> Part | None:
        if part is not None:
            self.traffic.add(size=part.data.size)
        return part


def _open(url: str, retries: RetryPolicy, traffic: Traffic) -> Objects:
    if url.partition("://")[0] == SCHEME:
        return ZarrStoreObjects(url, traffic)
    check_scheme(url)
    # Imported late: only the extra `remote` installs obstore, and who reads files waits for neither library.
    if url.partition("://")[0] not in OBSTORE:
        module = importlib.import_module("voxload.readers.remote.fsspecobjects")
        return cast("Objects", module.FsspecObjects(url, traffic))
    module = importlib.import_module("voxload.readers.remote.obstoreobjects")
    return cast("Objects", module.ObstoreObjects(url, retries, traffic))
