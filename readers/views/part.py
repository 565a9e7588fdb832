"""PartReader: what all readers of a part of a stored volume have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from voxload.geometry import Box
from voxload.readers.generation import Generation, as_dated
from voxload.readers.maderead import MadeRead, made_read
from voxload.readers.protocol import NOTHING, ReadCost, Reader, Volume, VolumeInfo, check_box
from voxload.readers.requests import Request, check_requests, read_many


class PartReader(ABC):
    """Reads boxes of a part of a volume as if it were the whole; see the Reader contract. Subclasses say what is where.

    Parameters
    ----------
    reader
        Reads what is stored.
    info
        What is known of the part.
    owns
        Whether `close` closes `reader`, which others may share.
    """

    def __init__(self, reader: Reader, info: VolumeInfo, *, owns: bool) -> None:
        self._reader, self._info, self._owns = reader, info, owns

    @abstractmethod
    def _parts(self, box: Box) -> list[tuple[Box, slice]]:
        """Return the boxes that a box is in what is stored, and the channels of the box that each of them is."""

    def describe(self) -> VolumeInfo:
        """Return what is known of the part; chunks and shards are those of what is stored."""
        return self._info

    def cost(self, box: Box) -> ReadCost:
        """Return what reading `box` costs; a chunk counts for each box of what is stored that it serves."""
        check_box(self._info, box)
        return sum((self._reader.cost(part) for part, _ in self._parts(box)), NOTHING)

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box` of the part into `out`."""
        self.read_many([Request(box, out)])

    def read_many(self, requests: Sequence[Request]) -> None:
        """Read many boxes of the part."""
        check_requests(self._info, requests)
        read_many(self._reader, self._stored(requests))

    def made_read(self, requests: Sequence[Request], base: int) -> MadeRead | None:
        """See Repeatable."""
        return made_read(self._reader, self._stored(requests), base)

    def generation(self, box: Box) -> Generation | None:
        """See Dated; that of what is stored."""
        dated = as_dated(self._reader)
        if dated is None:
            return None
        found = [dated.generation(part) for part, _ in self._parts(box)]
        return found[0] if len(found) == 1 else Generation.joined(found)

    def is_outdated(self) -> bool:
        """See Dated."""
        dated = as_dated(self._reader)
        return dated is not None and dated.is_outdated()

    def close(self) -> None:
        """Close what is read from, unless others share it."""
        if self._owns:
            self._reader.close()

    def _stored(self, requests: Sequence[Request]) -> list[Request]:
        """Return requests of what is stored."""
        return [Request(part, one.out[rows]) for one in requests for part, rows in self._parts(one.box)]
