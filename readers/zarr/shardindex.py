"""ShardLayout: how inner chunks lie in a shard, and where its index says they are."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import crc32c
import numpy as np
import numpy.typing as npt

from voxload.errors import DataError

ABSENT = 2**64 - 1
"""Offset and length of an inner chunk that was never written."""
_ENTRY_BYTES = 16
_CRC_BYTES = 4

Entries = npt.NDArray[np.uint64]
"""Offset and length of each inner chunk: the grid of inner chunks, then two."""


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """How inner chunks lie in a shard.

    Source: Zarr v3, sharding-indexed codec, version 1.0.
    """

    inner: tuple[int, ...]
    """Extent of an inner chunk, in stored axis order."""
    grid: tuple[int, ...]
    """Inner chunks of a shard, per axis."""
    at_end: bool
    """Whether the index stands at the end of the shard rather than at its start."""
    has_checksum: bool
    """Whether the index ends in a crc32c."""

    @property
    def index_bytes(self) -> int:
        """Bytes of the index, its checksum included."""
        return prod(self.grid) * _ENTRY_BYTES + (_CRC_BYTES if self.has_checksum else 0)

    def index_offset(self, size: int, subject: str) -> int:
        """Return where the index of a shard of `size` bytes begins; raises DataError when it has no room."""
        if size == 0:
            raise DataError(subject, found="an empty file", expected="a stored chunk")
        if size < self.index_bytes:
            raise DataError(
                subject,
                found=f"{size} bytes",
                expected=f"at least {self.index_bytes} for a shard's index: the shard is cut short",
            )
        return size - self.index_bytes if self.at_end else 0

    def parse(self, raw: bytes, size: int, subject: str) -> Entries:
        """Return the entries of an index, once its checksum is right and each lies inside the shard.

        Parameters
        ----------
        raw
            The index's bytes.
        size
            Bytes of the shard.
        subject
            Its name, for messages.

        Raises
        ------
        DataError
            When an entry points outside the shard, or the index is not what was written.
        """
        body = raw[:-_CRC_BYTES] if self.has_checksum else raw
        entries = np.frombuffer(body, dtype="<u8").reshape(*self.grid, 2).astype(np.uint64)
        offsets, lengths = entries[..., 0], entries[..., 1]
        absent = (offsets == ABSENT) & (lengths == ABSENT)
        # No sum of two entries: a damaged index may hold numbers whose sum wraps around.
        inside = (offsets <= size) & (lengths <= np.uint64(size) - np.minimum(offsets, np.uint64(size)))
        if not bool(np.all(inside | absent)):
            raise DataError(
                subject,
                found="a shard index that points outside the shard",
                expected=f"entries within {size} bytes: the shard is cut short or damaged",
            )
        if self.has_checksum:
            found, expected = int.from_bytes(raw[-_CRC_BYTES:], "little"), crc32c.crc32c(body)
            if found != expected:
                raise DataError(
                    subject,
                    found=f"a shard index with checksum {found:#010x}",
                    expected=f"{expected:#010x}",
                )
        return entries
