"""Generation: what tells the stored voxels of a box from themselves once they were written anew."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from voxload.geometry import Boundary, Box, pieces
from voxload.readers.protocol import Reader
from voxload.readers.remote import RemoteStore
from voxload.readers.remote.objects import Facts
from voxload.readers.storage.stamp import Stamp
from voxload.readers.store import is_url

_ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Generation:
    """What a box was stored as; two that are equal and settled hold the same voxels. Nodes that share a storage agree.

    To be sure that voxels are of a generation, take it before they are read, and compare it with what it is afterwards.
    """

    name: str
    """Thirty-two hexadecimal digits that stand for the stamps or entity tags of all that the box is made of."""
    is_settled: bool
    """Whether what is written from the moment on when it was taken makes another one: only then may outlive the moment
    what is known by it."""

    @classmethod
    def of(cls, parts: Iterable[Stamp | Facts | None]) -> Generation | None:
        """Return that of some files or objects, in an order that is always the same; None stands for one not there.

        None where an object tells nothing by which it could be known again.
        """
        digest, is_settled = hashlib.blake2b(digest_size=16), True
        for part in parts:
            if isinstance(part, Facts) and not part.is_strong:
                return None
            text = _ABSENT if part is None else part.text
            digest.update(f"{len(text)} {text}".encode(errors="surrogateescape"))
            is_settled &= part is None or part.is_settled
        return cls(digest.hexdigest(), is_settled)

    @classmethod
    def joined(cls, parts: Iterable[Generation | None]) -> Generation | None:
        """Return that of several boxes together; None where one has none."""
        digest, is_settled = hashlib.blake2b(digest_size=16), True
        for part in parts:
            if part is None:
                return None
            digest.update(part.name.encode())
            is_settled &= part.is_settled
        return cls(digest.hexdigest(), is_settled)


@runtime_checkable
class Dated(Protocol):
    """A reader that can tell the generation of what it reads; all methods may be called from many threads at once."""

    def generation(self, box: Box) -> Generation | None:
        """Return the generation of `box`, spatial and inside the volume, as it is stored now; None where none is known.

        Asks the file system or the storage about each file or object that `box` is made of, and reads none. Raises
        OSError or a VoxloadError where these do not answer.
        """
        ...

    def is_outdated(self) -> bool:
        """Tell whether the volume should be opened anew, since what is remembered of it may not hold any more."""
        ...


@cache
def _is_dated(kind: type) -> bool:
    return issubclass(kind, Dated)


def as_dated(reader: Reader) -> Dated | None:
    """Return a reader that is `Dated`, or None; which classes are is asked once, for that takes as long as a read."""
    return cast("Dated", reader) if _is_dated(type(reader)) else None


def block_generation(reader: Reader, box: Box, *, boundary: str | Boundary) -> Generation | None:
    """Return the generation of a block that may reach outside the volume; None where the reader knows none."""
    dated = as_dated(reader)
    if dated is None:
        return None
    parts = {part.source: None for part in pieces(box, reader.describe().spatial, boundary)}
    return Generation.joined(dated.generation(part) for part in parts)


def file_generation(path: str) -> Generation | None:
    """Return the generation of a file, or of the object at a URL, unopened; None of a folder, or where none is known.

    It is a volume's where all that the volume is made of lies in that file. Raises as `Dated.generation` does.
    """
    if is_url(path):
        facts = RemoteStore(path).facts("")
        return None if facts is None else Generation.of([facts])
    if not stat.S_ISREG(Path(path).stat().st_mode):
        return None
    return Generation.of([Stamp.of(path)])


def is_outdated(stamps: Iterable[Stamp]) -> bool:
    """Tell whether one of several files should be opened anew."""
    return any(stamp.is_outdated for stamp in stamps)


def stamp_of(path: str, *, since: int | None = None) -> Stamp | None:
    """Return the stamp of a file, or None where there is none."""
    try:
        return Stamp.of(os.fspath(path), since=since)
    except (FileNotFoundError, NotADirectoryError):
        return None
