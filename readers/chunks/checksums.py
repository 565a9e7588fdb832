"""Checksums: the CRC-32C of every chunk of a volume as stored; checksumfile keeps them.

A chunk is what is decoded at once: in a shard, the inner chunk. Its checksum is over its bytes as stored, all of them,
or all before the last four where these are a CRC-32C of their own; see `checksum_of`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import crc32c
import numpy as np
import numpy.typing as npt

from voxload.errors import DataError
from voxload.files.limits import CHUNK_TABLE
from voxload.readers.scratch import Bytes

Place = tuple[int, ...]
_CRC_BYTES = 4
_PLACE_BYTES = _CRC_BYTES + 1
"""Bytes of a chunk's checksum, and of whether there is one."""
_RESIDUE = 0x48674BC7
"""CRC-32C of any data with their CRC-32C, low byte first, behind them."""


def checksum_of(data: Bytes) -> int:
    """Return the CRC-32C (RFC 3720, appendix B.4) of a chunk's bytes; holds no interpreter lock while it sums.

    The CRC of data that end in their own CRC is one and the same number for all data: it would not tell such a chunk,
    as Zarr's codec crc32c makes them, from another. The CRC at the end is then what is returned: it tells them apart,
    and a chunk with any flipped bit does not come here.
    """
    found = crc32c.crc32c(data.data)
    return int.from_bytes(data[-_CRC_BYTES:].tobytes(), "little") if found == _RESIDUE else found


@dataclass(frozen=True, slots=True, eq=False)
class Checksums:
    """The checksums of one volume; immutable once recorded, safe to share between threads."""

    values: npt.NDArray[np.uint32]
    """CRC-32C by place in the grid of chunks; 0 where there is no chunk."""
    present: npt.NDArray[np.bool_]
    """Whether the chunk was there, by place."""
    path: str = ""
    """The file that keeps them, for messages."""

    @classmethod
    def empty(cls, grid: Place) -> Checksums:
        """Return checksums of no chunks, to be recorded; raises DataError for more chunks than a table may have."""
        CHUNK_TABLE.check(f"a grid of {grid} chunks", _PLACE_BYTES * prod(grid), "checksums")
        return cls(np.zeros(grid, np.uint32), np.zeros(grid, np.bool_))

    @property
    def grid(self) -> Place:
        """Chunks along each axis."""
        return tuple(self.values.shape)

    def record(self, place: Place, data: Bytes) -> None:
        """Note the checksum of a chunk; threads may record different chunks at once."""
        self.values[place] = checksum_of(data)
        self.present[place] = True

    def check(self, place: Place, data: Bytes | None, *, name: Callable[[Place], str]) -> None:
        """Compare a chunk as stored, None where there is none; `name` names it in the message.

        Raises DataError when it is not what was recorded: other bytes, none, or a chunk where none was.
        """
        is_known = bool(self.present[place])
        if data is None:
            if is_known:
                expected = f"one with CRC-32C {self.values[place]:#010x}, as in {self.path}"
                raise DataError(f"no chunk {name(place)}", expected=expected)
            return
        if not is_known:
            raise DataError(f"chunk {name(place)}", found="data", expected=f"none, as in {self.path}")
        found = checksum_of(data)
        if found != self.values[place]:
            raise DataError(
                f"bytes of chunk {name(place)}",
                found=f"CRC-32C {found:#010x}",
                expected=f"{self.values[place]:#010x}, as in {self.path}",
            )


@dataclass(frozen=True, slots=True)
class ChecksumRow:
    """The checksums of one volume with what they belong to."""

    sample: str
    """Sample id."""
    dataset: str
    """Dataset name."""
    origin: str
    """What the volume was made of; empty where nothing says that."""
    checksums: Checksums
    """Its checksums."""
