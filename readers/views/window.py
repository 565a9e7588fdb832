"""WindowReader: one sample of several that share a stored volume."""

from __future__ import annotations

from dataclasses import replace

from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers.protocol import Location, Reader, Window
from voxload.readers.views.part import PartReader


class WindowReader(PartReader):
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
        super().__init__(reader, replace(stored, location=location, shape=(stored.shape[0], *window.shape)), owns=owns)
        self._start = window.start

    def _parts(self, box: Box) -> list[tuple[Box, slice]]:
        """See PartReader; a range of channels stays as it is."""
        return [(box.shift((0,) * (len(box.start) - len(self._start)) + self._start), slice(None))]
