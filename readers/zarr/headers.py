"""ChunkHeaders: what is checked of stored chunks before zarr-python's codecs get them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from voxload.errors import DataError, UsageError
from voxload.geometry import Box, chunks_touched
from voxload.readers.blosc import HEADER_BYTES, check_header
from voxload.readers.parts import Place
from voxload.readers.protocol import Location
from voxload.readers.store import Store
from voxload.readers.zarr.chunkindex import ChunkIndex

_CRC_BYTES = 4
"""A checksum behind a chunk (Zarr v3, crc32c codec); zarr-python looks at it before it decodes."""
_BATCH = 2**12
"""Chunks that are looked at together."""


class ChunkHeaders:
    """Checks the headers of blosc chunks.

    numcodecs decodes a blosc chunk without a look at how long it is: of one that is cut short it reads what lies behind
    it in memory, and of one whose header claims gigabytes it takes them.

    Parameters
    ----------
    location
        The array, for messages.
    codecs
        Names of its codecs, the one that was applied last at the end.
    """

    def __init__(self, location: Location, codecs: Sequence[str]) -> None:
        self._location = location
        below = list(codecs)
        while below and below[-1] == "crc32c":
            below.pop()
        self._sums_bytes = _CRC_BYTES * (len(codecs) - len(below))
        places = [place for place, name in enumerate(below) if "blosc" in name]
        self._has_blosc = bool(places)
        self._is_inside = any(place < len(below) - 1 for place in places)

    def check(self, index: ChunkIndex, store: Store, stored: Box) -> None:
        """Check every chunk that holds voxels of `stored`; chunks that are not there are none.

        Raises
        ------
        DataError
            Naming a chunk that is not as long as its header says.
        UsageError
            When another codec hides the headers.
        """
        if not self._has_blosc:
            return
        touched = chunks_touched(stored, index.layout.unit)
        places = itertools.product(*map(range, touched.start, touched.stop))
        while some := list(itertools.islice(places, _BATCH)):
            heads = store.map(lambda place: index.head(place, HEADER_BYTES), some)
            for place, head in zip(some, heads, strict=True):
                if head is not None:
                    self.check_chunk(place, *head)

    def check_chunk(self, place: Place, head: Any, size: int) -> None:
        """Check one chunk of `size` bytes by the first of them; raises as `check` does."""
        if not self._has_blosc:
            return
        if self._is_inside:
            raise UsageError(
                f"{self._location}",
                found="blosc before another codec that only zarr-python decodes",
                expected="blosc as the last codec: numcodecs reads beyond the end of damaged data, and nothing sees it",
                remedy="store it again with other codecs",
            )
        try:
            check_header(head, size - self._sums_bytes)
        except ValueError as error:
            raise DataError(
                f"{self._location}, chunk {place}",
                found=str(error),
                expected="decodable data",
                remedy="copy or convert it again: it is damaged or incomplete",
            ) from error
