"""RemoteBytes: ranges of one object behind a URL, all of the version that was there when it was opened."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voxload.errors import DataError, NotFoundError
from voxload.readers.remote.objects import STRONG_SCHEMES
from voxload.readers.remote.store import RemoteStore
from voxload.readers.scratch import Bytes

HEAD_BYTES = 2**20
"""Fetched when an object is opened, to learn its size and version; the metadata of most files lie in them. At 100 MB/s
they are no longer under way than a request takes anyway."""


@dataclass(frozen=True, slots=True)
class ObjectStamp:
    """An object as it was when it was opened."""

    path: str
    """Its URL."""
    size: int
    """Its bytes."""
    version: str
    """Its entity tag, or what else the storage tells of it that differs once it was written again."""

    @property
    def is_settled(self) -> bool:
        """Whether an object that is written from now on has another stamp."""
        return self.version.startswith('"') and self.path.partition("://")[0] in STRONG_SCHEMES

    def check_unchanged(self) -> None:
        """Do nothing: each request names the version that it wants."""


class RemoteBytes:
    """An object whose ranges are fetched as they are asked for; the counterpart of `FileBytes`.

    All methods may be called from many threads at once. Each read is one request, on the condition that the object
    still has the version that it had first.

    Parameters
    ----------
    store
        Where it is, by the empty name.
    stamp
        Which it is.
    """

    is_local = False
    """Nothing of it is on this node."""
    map = None
    """It is no memory."""

    def __init__(self, store: RemoteStore, stamp: ObjectStamp) -> None:
        self.store = store
        self.stamp = stamp
        self.path = stamp.path
        self.size = stamp.size

    def check_unchanged(self) -> None:
        """Do nothing: each request names the version that it wants."""

    def read(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset`; raises DataError when they do not all lie in the object, or it changed.

        Raises
        ------
        StorageError
            When the storage refuses, does not answer, or knows no ranges.
        """
        # Two comparisons and no sum: a damaged table may hold numbers that overflow elsewhere.
        if not 0 <= offset <= self.size or not 0 <= length <= self.size - offset:
            raise DataError(
                self.path,
                found=f"{max(0, self.size - offset)} bytes at {offset}",
                expected=f"{length}: the object is cut short or its table of chunks damaged",
            )
        return self.store.span("", offset, offset + length, self.stamp.version)

    def fresh(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset` in memory of their own; see `read`."""
        return self.read(offset, length)

    def holds(self, offsets: npt.NDArray[np.uint64], length: int) -> bool:
        """Tell whether ranges of `length` bytes all lie in the object."""
        return length <= self.size and bool((offsets <= np.uint64(self.size - length)).all())

    def is_cold(self, offset: int) -> bool:  # noqa: ARG002 - as of every file
        """Return False: there is nobody to announce ranges to."""
        return False

    def announce(self, offset: int, length: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: connections are the process's."""


def open_object(url: str) -> tuple[RemoteBytes, Bytes]:
    """Return the object at `url` with its first bytes, at most `HEAD_BYTES`; one request.

    Raises
    ------
    NotFoundError
        When there is no such object.
    """
    store = RemoteStore(url)
    head = store.edge("", HEAD_BYTES, at_end=False)
    if head is None:
        raise NotFoundError(url, found="no such object", remedy="check the URL")
    return RemoteBytes(store, ObjectStamp(url, head.size, head.version)), head.data
