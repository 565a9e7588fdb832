"""DecodedChunks: chunks of datasets that are read through h5py, decoded here and not by libhdf5.

libhdf5 believes its filters: where one gives fewer bytes than a chunk has, it hands out what its memory held before,
and some write or read beyond their buffers. So it gives chunks as they are stored, and converts elements whose type is
not numpy's, but decodes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod

import h5py
import numpy as np
import numpy.typing as npt

from voxload.errors import DataError, UsageError
from voxload.files.limits import VALUES
from voxload.geometry import Box, chunks_touched
from voxload.readers.chunks.chunked import Fetched
from voxload.readers.chunks.storedchunks import StoredChunks, grid_of
from voxload.readers.decode.plugins import ALLOWED, NAMES
from voxload.readers.hdf5.checks import check_written
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.quirks import converted, has_unknown_edges, read_elements
from voxload.readers.hdf5.route import find_pipeline
from voxload.readers.hdf5.source import Ranges
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.protocol import Volume
from voxload.readers.scratch import Bytes

_REMEDY = "copy or convert the file again"
_AT_ONCE = 2**10
"""Chunks that libhdf5 is asked for at once: it takes 5 KiB for each, however small it is."""


class DecodedChunks:
    """Reads boxes of one chunked dataset; safe to use from many threads, which h5py lets through one by one.

    Parameters
    ----------
    dataset
        The dataset, which is neither virtual nor external.
    subject
        File and dataset, for messages.

    Raises
    ------
    UsageError
        When only libhdf5 or a plugin can decode its chunks.
    """

    def __init__(self, dataset: h5py.Dataset, subject: str) -> None:
        pipeline = find_pipeline(dataset)
        if isinstance(pipeline, str):
            raise _undecodable(dataset, subject, pipeline)
        self._has_unknown_edges = pipeline.has_filters and has_unknown_edges(dataset)
        self._dataset, self._subject = dataset, subject
        self.pipeline = pipeline
        """How a chunk is decoded."""
        self._stored_type = dataset.id.get_type()
        self._dtype = dataset.dtype.newbyteorder("=")
        self._chunks: tuple[int, ...] = tuple(dataset.chunks)

    def read_into(self, table: ChunkTable, box: Box, out: Volume) -> None:
        """Read `box`, in stored indices, into `out`; chunks that `table` lacks become the dataset's fill value.

        Raises
        ------
        DataError
            Naming the chunk, when one cannot be decoded or is not as long as it should be.
        """
        touched = chunks_touched(box, self._chunks)
        if not self.pipeline.has_filters:
            sizes = table.sizes[touched.slices]
            wrong = np.argwhere((sizes >= 0) & (sizes != self.pipeline.nbytes))
            if len(wrong):  # libhdf5 believes that they are whole, and makes up the rest
                place = tuple(int(i) + first for i, first in zip(wrong[0], touched.start, strict=True))
                size = f"{sizes[tuple(wrong[0])]} bytes"
                subject = f"{self._subject}, chunk {place}"
                raise DataError(subject, found=size, expected=str(self.pipeline.nbytes), remedy=_REMEDY)
            for some in _parts(box, self._chunks):
                read_elements(self._dataset, some.slices, out, some.relative_to(box.start).slices)
            return
        for place in itertools.product(*map(range, touched.start, touched.stop)):
            chunk = self._extents(place)
            common = chunk.intersect(box)
            if common is None:
                continue
            part = out[common.relative_to(box.start).slices]
            found = table.find(place)
            if found is None:
                part[...] = self._dataset.fillvalue
            else:
                part[...] = self.chunk(place, found.mask)[common.relative_to(chunk.start).slices]

    def chunk(self, place: Place, mask: int) -> Volume:
        """Return a chunk that is stored, decoded and of a type of this machine; it may be read only."""
        try:
            _, stored = self._dataset.id.read_direct_chunk(self._extents(place).start)
            found = self.decode(np.frombuffer(stored, np.uint8), mask)
            return self._at_edge(place, found) if len(stored) == self.pipeline.nbytes else found
        except DataError as error:
            raise error.within(f"{self._subject}, chunk {place}", remedy=_REMEDY) from error
        except (OSError, RuntimeError, ValueError) as error:
            what = str(error).splitlines()[0] if str(error) else type(error).__name__
            subject = f"{self._subject}, chunk {place}"
            raise DataError(subject, found=what, expected="a chunk as stored", remedy=_REMEDY) from error

    def decode(self, stored: Bytes, mask: int) -> Volume:
        """Return the voxels of a chunk as stored, whose filters at the bits of `mask` were left out."""
        data, is_shuffled = self.pipeline.decode(stored, mask=mask)
        size = self._stored_type.get_size()
        count = len(data) // size
        if is_shuffled:
            data = np.ascontiguousarray(data.reshape(size, count).T).reshape(-1)
        return converted(data, self._stored_type, self._dataset.dtype).reshape(self._chunks)

    def _at_edge(self, place: Place, found: Volume) -> Volume:
        """Return a chunk that the filters keep as long as it is, and may have been left out of."""
        chunk = self._extents(place)
        inside = chunk.intersect(Box.whole(self._dataset.shape))
        if not self._has_unknown_edges or inside is None or inside == chunk:
            return found
        # With or without them it has all its bytes: libhdf5, which knows, has none to make up.
        whole = np.zeros(self._chunks, self._dtype)
        whole[inside.relative_to(chunk.start).slices] = self._dataset[inside.slices]
        return whole

    def _extents(self, place: Place) -> Box:
        corner = tuple(index * width for index, width in zip(place, self._chunks, strict=True))
        return Box.whole(self._chunks).shift(corner)


def read_whole(dataset: h5py.Dataset, subject: str) -> npt.NDArray[np.generic]:
    """Return all values of a dataset of numbers, such as targets.

    Raises
    ------
    UsageError
        When only libhdf5 or a plugin can decode it.
    DataError
        When it has more values than are read whole, one was never written, or a chunk cannot be decoded.
    """
    VALUES.check(subject, prod(dataset.shape), "an array")
    whole = Box.whole(dataset.shape)
    table = ChunkTable.read(dataset) if dataset.chunks else None
    check_written(dataset, table, whole, subject)
    if table is None:
        return np.asarray(dataset[()])
    table.check(subject, dataset.file.id.get_filesize())
    out = np.empty(dataset.shape, dataset.dtype.newbyteorder("="))
    DecodedChunks(dataset, subject).read_into(table, whole, out)
    return out


def _parts(box: Box, chunk: tuple[int, ...]) -> Iterator[Box]:
    """Yield the parts of a box that hold voxels of so many chunks each as libhdf5 is asked for at once; pure."""
    touched = chunks_touched(box, chunk)
    counts, left = [1] * len(chunk), _AT_ONCE
    for axis in reversed(range(len(chunk))):
        counts[axis] = max(1, min(left, touched.shape[axis]))
        left //= counts[axis]
    widths = [count * width for count, width in zip(counts, chunk, strict=True)]
    first = [place * width for place, width in zip(touched.start, chunk, strict=True)]
    starts = (range(start, stop, width) for start, stop, width in zip(first, box.stop, widths, strict=True))
    for corner in itertools.product(*starts):
        part = Box.whole(widths).shift(corner).intersect(box)
        if part is not None:
            yield part


def _undecodable(dataset: h5py.Dataset, subject: str, reason: str) -> UsageError:
    """Return the error of a dataset that voxload cannot decode by itself, with what can be done."""
    plist = dataset.id.get_create_plist()
    numbers = [int(plist.get_filter(index)[0]) for index in range(plist.get_nfilters())]
    names = [NAMES[number] for number in numbers if number in NAMES and f"({NAMES[number]})" in reason]
    rewrite = "rewrite it with another filter, as by h5repack -f GZIP=4"
    return UsageError(
        subject,
        found=reason,
        expected="filters that voxload decodes itself",
        remedy=f"set {ALLOWED}={names[0]}, after which damage of it may go unseen; or {rewrite}" if names else rewrite,
    )


def library_chunks(decoded: DecodedChunks, dataset: h5py.Dataset, table: ChunkTable, file: Ranges) -> StoredChunks:
    """Return the chunks of a dataset that is read through h5py; `file` closes when the last of them is gone."""

    def fetch(place: Place) -> Fetched | None:
        file.check_unchanged()
        found = table.find(place)
        return None if found is None else Fetched(file.read(found.offset, found.size), found.mask)

    def decode(_place: Place, fetched: Fetched) -> None:
        decoded.decode(fetched.data, fetched.mask)

    return StoredChunks(grid_of(dataset.shape, dataset.chunks), tuple(dataset.chunks), fetch, decode, str)
