"""InflatedFile: an array in a gzip or zlib stream, read forwards in bounded memory.

Where channels are the slowest axis, a slab of one spatial axis lies in as many places as there are channels. Such a
stream is decoded once when it is opened: that verifies it whole and leaves a decoder at the beginning of each channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.inflater import STATE_BYTES, WORKING_BYTES, Inflater
from voxload.convert.sources.protocol import ReadInto
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume
from voxload.regular import open_regular


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
    def parts(self) -> int:
        """Places in the stream that a slab of the slowest spatial axis is read from."""
        return self.shape[0] if self.order.axes[0] == "C" else 1

    @property
    def scratch_bytes(self) -> int:
        """Memory that reading takes beside the array it reads into."""
        return self.parts * STATE_BYTES + WORKING_BYTES

    @contextmanager
    def open(self) -> Iterator[ReadInto]:
        """Open the file and yield the function that reads whole planes, forwards, into a (C, D, H, W) array.

        Raises
        ------
        DataError
            When the stream is damaged, ends before the last voxel or goes on behind it.
        """
        with translated(f"{self.path}"):
            file = open_regular(self.path, buffering=0)
        with file:
            inflaters = self._inflaters(file.fileno())

            def read_into(box: Box, out: Volume) -> None:
                with translated(f"{self.path}"):
                    self._read(inflaters, box, out)

            yield read_into

    def _inflaters(self, descriptor: int) -> list[Inflater]:
        """Return a decoder at the first byte of every part; of several parts, the whole stream is verified."""
        with translated(f"{self.path}"):
            inflater = Inflater(f"{self.path}", descriptor, self.offset)
            if self.parts == 1:
                return [inflater]
            found = []
            for part in range(self.parts):
                inflater.skip_to(self.skipped + part * self._part_bytes)
                found.append(inflater.copy())
            inflater.skip_to(self.skipped + self.parts * self._part_bytes)
            inflater.finish()
            return found

    def _read(self, inflaters: list[Inflater], box: Box, out: Volume) -> None:
        target = self.order.view(out)
        stored = self.order.box(box, out.shape[0])
        first, plane = self._plane(stored)
        rows = target if target.flags.c_contiguous else np.empty(stored.shape, dtype=target.dtype)
        content = rows.data.cast("B")
        length = len(content) // self.parts
        for part, inflater in enumerate(inflaters):
            start = self.skipped + part * self._part_bytes + first * plane
            inflater.skip_to(start)
            inflater.read_into(content[part * length : (part + 1) * length])
        if inflaters[-1].position == self.skipped + self.parts * self._part_bytes:
            inflaters[-1].finish()
        if not self.dtype.isnative:
            rows.byteswap(inplace=True)
        if rows is not target:
            np.copyto(target, rows)

    def _plane(self, stored: Box) -> tuple[int, int]:
        """Return the first plane of a stored box and the bytes of a plane; raises UsageError on parts of planes."""
        slowest = slowest_spatial(self.order)
        if stored.shape[slowest + 1 :] != self.shape[slowest + 1 :]:
            raise UsageError(
                f"{self.path}",
                found=f"box {stored} of shape {self.shape}",
                expected="whole planes of the slowest axis, as a compressed stream gives them",
                remedy="decompress the file first, or allow more memory with --max-memory",
            )
        return stored.start[slowest], prod(self.shape[slowest + 1 :]) * self.dtype.itemsize

    @property
    def _part_bytes(self) -> int:
        return prod(self.shape) // self.parts * self.dtype.itemsize


def slowest_spatial(order: AxisOrder) -> int:
    """Return the place of the slowest spatial axis among the stored axes."""
    return 1 if order.axes[0] == "C" else 0
