"""InflatedFile: an array in a gzip or zlib stream, read forwards in bounded memory.

Where channels are the slowest axis, a slab of one spatial axis lies in as many places as there are channels. Such a
stream is decoded once when it is opened: that verifies it whole and leaves a decoder at the beginning of each channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.flat import FlatFile
from voxload.convert.sources.inflater import STATE_BYTES, WORKING_BYTES, Inflater
from voxload.convert.sources.protocol import ReadInto
from voxload.convert.sources.streams import Stream, open_stream
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.protocol import Volume


@dataclass(frozen=True, slots=True)
class InflatedFile:
    """An array in a compressed stream that ends with it, slowest axis first."""

    path: Path
    """The file."""
    offset: int
    """Bytes of the file before the stream."""
    skipped: int
    """Decoded bytes before the first voxel."""
    shape: tuple[int, ...]
    """Extents in the order of the bytes, slowest axis first."""
    dtype: np.dtype[Any]
    """Stored type, with the stored byte order."""
    order: AxisOrder
    """Axes in the order of the bytes."""

    @property
    def scratch_bytes(self) -> int:
        """Memory that reading takes beside the array it reads into."""
        parts = self.shape[0] if self.order.axes[0] == "C" else 1
        return parts * STATE_BYTES + WORKING_BYTES

    @contextmanager
    def open(self) -> Iterator[ReadInto]:
        """Open the file and yield the function that reads whole planes, forwards, into a (C, D, H, W) array.

        Raises
        ------
        DataError
            When the stream is damaged, ends before the last voxel or goes on behind it.
        """
        place = FlatFile(self.path, self.skipped, shape=self.shape, dtype=self.dtype, order=self.order)
        end = self.skipped + prod(self.shape) * self.dtype.itemsize
        stream = Stream(partial(Inflater.open, self.path, self.offset), end, is_whole=True)
        behind = 0
        with open_stream(place, stream) as read:

            def read_into(box: Box, out: Volume) -> None:
                nonlocal behind
                behind = self._check_order(self.order.box(box, out.shape[0]), behind)
                read(box, out)

            yield read_into

    def _check_order(self, stored: Box, behind: int) -> int:
        """Refuse parts of planes, and planes before those that are behind; return how many then are."""
        slowest = slowest_spatial(self.order)
        first, stop = stored.start[slowest], stored.stop[slowest]
        if first < behind:
            raise UsageError(
                f"{self.path}",
                found=f"a read of plane {first} after plane {behind - 1}",
                expected="reads in the order of the bytes: a compressed stream only goes forwards",
            )
        if stored.shape[slowest + 1 :] != self.shape[slowest + 1 :]:
            raise UsageError(
                f"{self.path}",
                found=f"box {stored} of shape {self.shape}",
                expected="whole planes of the slowest axis, as a compressed stream gives them",
                remedy="decompress the file first, or allow more memory with --max-memory",
            )
        return stop


def slowest_spatial(order: AxisOrder) -> int:
    """Return the place of the slowest spatial axis among the stored axes."""
    return 1 if order.axes[0] == "C" else 0
