"""WindowReader: one sample of several that share a stored volume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers.generation import Generation, as_dated
from voxload.readers.maderead import MadeRead, made_read
from voxload.readers.protocol import Location, ReadCost, Reader, Volume, VolumeInfo, Window, check_box
from voxload.readers.requests import Request, check_requests, read_many


class WindowReader:
    """Reads boxes of a window as if it were the whole volume; see the Reader contract.

    Nothing outside the window is ever given: what lies beyond its border is the boundary's to say. Chunks are those of
    the stored volume, so a window that cuts them costs what it cuts.

    Parameters
    ----------
    reader
        Reads what is stored.
    location
        Where the sample is; names the window.
    window
        The window.
    owns
        Whether `close` closes `reader`, which others may share.

    Raises
    ------
    DataError
        When the window leaves what is stored.
    """

    def __init__(self, reader: Reader, location: Location, *, window: Window, owns: bool = True) -> None:
        stored = reader.describe()
        if not stored.whole.contains(window.box):
            raise DataError(
                f"{location}, window {window.box}",
                found=f"a stored volume of {stored.spatial}",
                expected="one that holds the window",
                remedy="the file is another one than was catalogued: catalogue it again",
            )
        self._reader, self._start, self._owns = reader, window.start, owns
        self._info = replace(stored, location=location, shape=(stored.shape[0], *window.shape))

    def describe(self) -> VolumeInfo:
        """Return what is known of the sample; chunks and shards are those of what is stored."""
        return self._info

    def cost(self, box: Box) -> ReadCost:
        """Return what reading `box` of the sample costs."""
        check_box(self._info, box)
        return self._reader.cost(self._there(box))

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box` of the sample into `out`."""
        self.read_many([Request(box, out)])

    def read_many(self, requests: Sequence[Request]) -> None:
        """Read many boxes of the sample."""
        check_requests(self._info, requests)
        read_many(self._reader, self._stored(requests))

    def made_read(self, requests: Sequence[Request], base: int) -> MadeRead | None:
        """See Repeatable."""
        return made_read(self._reader, self._stored(requests), base)

    def _there(self, box: Box) -> Box:
        """Return a box in what is stored; a range of channels stays as it is."""
        return box.shift((0,) * (len(box.start) - len(self._start)) + self._start)

    def _stored(self, requests: Sequence[Request]) -> list[Request]:
        """Return requests of what is stored."""
        return [Request(self._there(one.box), one.out) for one in requests]

    def generation(self, box: Box) -> Generation | None:
        """See Dated; that of what is stored."""
        dated = as_dated(self._reader)
        return None if dated is None else dated.generation(self._there(box))

    def is_outdated(self) -> bool:
        """See Dated."""
        dated = as_dated(self._reader)
        return dated is not None and dated.is_outdated()

    def close(self) -> None:
        """Close what is read from, unless others share it."""
        if self._owns:
            self._reader.close()
