"""VolumeStorage: the contract of a storage format, as a conversion writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from voxload.convert.manifest import Manifest
from voxload.convert.storage.compression import Encoder

Place = tuple[int, int, int, int]
"""A chunk's place in the grid of chunks, (c, d, h, w)."""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """Where an encoded chunk lies in the files of an unfinished volume."""

    file: int
    """Number of the file."""
    offset: int
    """Its first byte."""
    length: int
    """Its bytes."""


class VolumeStorage(Protocol):
    """How encoded chunks become a volume of a format; immutable.

    Rules: chunks of the file ``file_of(place)`` are appended to ``folder / file_name(number)`` in any order; ``finish``
    may be called again after it was killed, with the same chunks, and then begins with files that were cut back to
    what was appended. What the system refuses is raised as OSError.
    """

    @property
    def encoder(self) -> Encoder:
        """What makes a chunk's bytes."""
        ...

    def create(self, folder: Path) -> None:
        """Prepare an empty folder."""
        ...

    def file_of(self, place: Place) -> int:
        """Return the number of the file that a chunk belongs to."""
        ...

    def file_name(self, number: int) -> str:
        """Return a file's path below the folder."""
        ...

    def finish(self, folder: Path, chunks: Mapping[Place, StoredChunk], manifest: Manifest) -> Path:
        """Make the volume whole and return what is to get its final name: the folder, or a file in it."""
        ...

    def size(self, folder: Path, chunks: Mapping[Place, StoredChunk]) -> int:
        """Return the bytes that `stored_bytes` will count."""
        ...
