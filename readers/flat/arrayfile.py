"""ArrayFileReader: boxes of an array that lies in a file as it would in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.faults import translated
from voxload.readers.flat.contiguous import ContiguousVolume, SpanVolume
from voxload.readers.flat.mappedreads import MappedReads
from voxload.readers.generation import Generation
from voxload.readers.maderead import MadeRead
from voxload.readers.pasting.pasteplan import ChunkShape, Wanted
from voxload.readers.protocol import Location, ReadCost, Volume, VolumeInfo, check_box, check_volume, closed, copy_cast
from voxload.readers.requests import Request, check_requests, read_wanted, wanted_in_place
from voxload.readers.storage.file import FileBytes
from voxload.readers.storage.readahead import FileRange
from voxload.readers.storage.stamp import Stamp

_SMALL_BYTES = 2**21
"""Smaller reads are copied by numpy: planning one for several threads takes longer than they spare."""


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """How an array lies in its file."""

    shape: tuple[int, ...]
    """In stored axis order."""
    dtype: np.dtype[Any]
    """In stored byte order."""
    offset: int = 0
    """Its first byte."""
    is_fortran: bool = False
    """Whether the first axis is the fastest rather than the last."""

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return prod(self.shape) * self.dtype.itemsize


_OWN_BYTES = 2**14
"""What a reader is counted for: it keeps nothing of the file."""


class ArrayFileReader:
    """Reads boxes of an array that lies in a file in one piece; see the Reader contract.

    On a node-local file system the file is mapped: a box costs the pages of its rows, and nothing is copied twice.
    On others it never is, for a read of a map that fails ends the process; there rows are read in spans.

    Parameters
    ----------
    location
        The file.
    layout
        How the array lies in it.
    order
        Its axes.
    format_name
        Storage format in words.

    Raises
    ------
    DataError
        When the file is too short for the array.
    UsageError
        When its elements are no numbers of 1, 2, 4 or 8 bytes.
    """

    def __init__(self, location: Location, layout: ArrayLayout, *, order: AxisOrder, format_name: str) -> None:
        self._layout, self._order = layout, order
        turned = tuple(reversed(range(len(layout.shape)))) if layout.is_fortran else None
        self._shape = ChunkShape.of(layout.shape, layout.dtype, turned=turned)
        with translated(str(location)):
            self._file = FileBytes(location.path, may_map=True)
        self._is_closed = False
        samples, steps, _ = order.lead(layout.shape)
        try:
            self._info = VolumeInfo(
                location=location,
                format=format_name,
                axes=order.axes,
                shape=order.to_volume(layout.shape, 1),
                dtype=layout.dtype,
                chunks=None,
                shards=None,
                codecs=(),
                samples=samples,
                steps=steps,
                route="spans: the file system is not node-local" if self._file.map is None else "memory map",
            )
            check_volume(self._info)
            if layout.dtype.itemsize not in (1, 2, 4, 8):
                raise UsageError(  # noqa: TRY301 - closes the file
                    str(location),
                    found=f"elements of {layout.dtype.itemsize} bytes",
                    expected="1, 2, 4 or 8",
                    remedy="convert it",
                )
            if layout.nbytes > self._file.size - layout.offset:
                raise DataError(  # noqa: TRY301 - closes the file
                    str(location),
                    found=f"{self._file.size} bytes",
                    expected=f"{layout.offset + layout.nbytes} for {layout.dtype} {layout.shape}",
                    remedy="copy or convert it again: it is damaged or incomplete",
                )
        except BaseException:
            self._file.close()
            raise
        self._array: Volume | None = None
        if self._file.map is not None and layout.dtype.isnative:
            strides = tuple(stride * layout.dtype.itemsize for stride in self._shape.strides)
            self._array = np.ndarray(layout.shape, layout.dtype, self._file.map.data, layout.offset, strides)

        self._again: MappedReads | None = None
        if self._file.map is not None:
            data = self._file.read(layout.offset, layout.nbytes)
            self._again = MappedReads(self._shape, data, self._file.stamp, offset=layout.offset)

    def describe(self) -> VolumeInfo:
        """Return what is known of the volume."""
        return self._info

    @property
    def held_bytes(self) -> int:
        """About as many bytes as this holds, beside the pages of a map, which are the system's."""
        return _OWN_BYTES

    def cost(self, box: Box) -> ReadCost:
        """Return the bytes of the box's rows; the system reads whole pages of them, or spans with what lies between."""
        check_box(self._info, box)
        size = self._order.stored_box(box, self._info.lead).size * self._info.dtype.itemsize
        return ReadCost(0, size, size)

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box` into `out`; only the pages, or the spans, that hold its rows are read."""
        self.read_many([Request(box, out)])

    def read_many(self, requests: Sequence[Request]) -> None:
        """Read many boxes, shared out among the process's threads."""
        if requests and self._again is not None and self._again.read_again(requests):
            return
        check_requests(self._info, requests)
        if self._is_closed:
            raise closed(self._info)
        subject = f"{self._info.location}, box {requests[0].box}" if requests else str(self._info.location)
        with translated(subject):
            # Beyond the end of a file that was cut short there are no pages: reading them would end the process.
            self._file.check_unchanged()
            read_wanted(self._info, self._order, requests, self._read)
        if requests and self._again is not None and (wanted := wanted_in_place(self._info, self._order, requests)):
            self._again.remember(requests, wanted)

    def made_read(self, requests: Sequence[Request], base: int) -> MadeRead | None:
        """See Repeatable."""
        wanted = wanted_in_place(self._info, self._order, requests) if self._again is not None else None
        return self._again.made(wanted, base) if self._again is not None and wanted else None

    def generation(self, box: Box) -> Generation | None:  # noqa: ARG002 - of a file there is one
        """See Dated."""
        return Generation.of([Stamp.of(self._file.path)])

    def is_outdated(self) -> bool:
        """See Dated."""
        return self._file.stamp.is_outdated

    def close(self) -> None:
        """Close the file; it is unmapped with the last array that looks into it."""
        self._is_closed, self._array, self._again = True, None, None
        self._file.close()

    def _read(self, wanted: list[Wanted]) -> None:
        subject, offset = str(self._info.location), self._layout.offset
        if self._file.map is None:
            SpanVolume(subject, self._shape, self._file, offset).read_all(wanted)
            return
        array = self._array
        if array is not None and sum(one.view.nbytes for one in wanted) < _SMALL_BYTES:
            for one in wanted:
                copy_cast(one.view, array[one.box.slices])
            return
        data = self._file.read(offset, self._layout.nbytes)
        stored = FileRange(self._file, offset, self._layout.nbytes)
        ContiguousVolume(subject, self._shape, data, stored).read_all(wanted)
