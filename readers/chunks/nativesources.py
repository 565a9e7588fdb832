"""Sources: where the core finds chunks, as ``struct source``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from voxload.readers.decode.ratio import longest_stored
from voxload.readers.pasting.kernels import AXES
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.scratch import Bytes, address, path_of
from voxload.readers.storage.file import FileBytes

_TABLE, _SHARDS, _FILES = range(3)
SHARD_COLUMNS = 5
"""Of ``struct shard``: descriptor, size, and the addresses of entries, stamp and path."""
SHARDS_PLACE = -(2 * AXES + 5)
"""Where in the numbers of a volume, which end with its source, the address of its list of shards stands."""


class Source(Protocol):
    """Where chunks are; keeps what its numbers point to."""

    @property
    def held_bytes(self) -> int:
        """About as many bytes as it holds."""
        ...

    def numbers(self) -> list[int]:
        """Return the structure's numbers."""
        ...


class TableSource:
    """Chunks at places of one open file.

    Parameters
    ----------
    file
        The file.
    offsets, sizes, masks
        Of each chunk, counted along the grid: its first byte, its bytes or -1, and the filters that it lacks.
    nbytes
        Bytes of a decoded chunk.
    """

    def __init__(
        self,
        file: FileBytes,
        *,
        offsets: npt.NDArray[np.uint64],
        sizes: npt.NDArray[np.int64],
        masks: npt.NDArray[np.uint32],
        nbytes: int,
    ) -> None:
        self._columns = (
            np.ascontiguousarray(offsets, np.uint64),
            np.ascontiguousarray(sizes, np.int64),
            np.ascontiguousarray(masks, np.uint32),
        )
        self._file, self._nbytes = file, nbytes
        self.held_bytes = sum(column.nbytes for column in self._columns)
        """Bytes of the table."""
        self._stamp, self._path = file.stamp.numbers(), path_of(file.path)

    def numbers(self) -> list[int]:
        """Return the structure's numbers."""
        return [
            _TABLE, self._file.descriptor, address(self._stamp), address(self._path),
            *[address(column) for column in self._columns], min(column.size for column in self._columns),
            0, *(1,) * AXES, *(1,) * AXES,
            0, 0, 0, longest_stored(self._nbytes, is_plain=False),
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShardSource:
    """Inner chunks of shards."""

    shards: npt.NDArray[np.int64]
    """``(shards, SHARD_COLUMNS)``, counted along their grid; the owner writes a row when it opens or closes a shard."""
    inner: Place
    """Chunks of a shard along each axis."""
    outer: Place
    """Shards along each axis."""
    nbytes: int
    """Bytes of a decoded chunk."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the list."""
        return self.shards.nbytes

    def numbers(self) -> list[int]:
        """Return the structure's numbers."""
        pad = (1,) * (AXES - len(self.inner))
        return [
            _SHARDS, -1, 0, 0, 0, 0, 0, 0,
            address(self.shards), *pad, *self.inner, *pad, *self.outer,
            0, 0, 0, longest_stored(self.nbytes, is_plain=False),
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileSource:
    """Chunks that are files of their own."""

    prefix: Bytes
    """Folder and what stands before the coordinates in a chunk's key, ended by a zero byte."""
    separator: str
    """What stands between coordinates."""
    axes: int
    """How many there are."""
    nbytes: int
    """Bytes of a decoded chunk."""
    held_bytes = 0
    """Nothing is remembered of the files."""

    @classmethod
    def of(cls, folder: str, key_of: Sequence[tuple[Place, str]], nbytes: int) -> FileSource | None:
        """Return the source for keys like these, of at least two places; None where they follow no such rule."""
        place, key = key_of[0]
        for separator in "/.":
            ending = separator.join(map(str, place))
            prefix = key.removesuffix(ending)
            if prefix != key and all(key == prefix + separator.join(map(str, place)) for place, key in key_of):
                return cls(path_of(f"{folder}/{prefix}"), separator, len(place), nbytes)
        return None

    def numbers(self) -> list[int]:
        """Return the structure's numbers."""
        return [
            _FILES, -1, 0, 0, 0, 0, 0, 0,
            0, *(1,) * AXES, *(1,) * AXES,
            address(self.prefix), ord(self.separator), self.axes, longest_stored(self.nbytes, is_plain=False),
        ]  # fmt: skip
