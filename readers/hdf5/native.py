"""NativeHdf5Reader: boxes of an HDF5 dataset without libhdf5, by as many threads as there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.chunks.chunkcache import Identity, chunk_cache
from voxload.readers.chunks.chunked import ChunkedVolume, Fetch, Fetched, Mapped, with_slot
from voxload.readers.chunks.chunkmoves import VolumeAxes
from voxload.readers.chunks.nativereads import NativeReads, NativeVolume
from voxload.readers.chunks.nativesources import TableSource
from voxload.readers.chunks.storedchunks import StoredChunks
from voxload.readers.chunks.verified import load_checksums, verified
from voxload.readers.faults import translated
from voxload.readers.flat.contiguous import ContiguousVolume, SpanVolume, Take
from voxload.readers.flat.mappedreads import MappedReads
from voxload.readers.generation import Generation, is_outdated
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.metadata import LazyMetadata, LoadedMetadata, Metadata
from voxload.readers.hdf5.source import Source
from voxload.readers.maderead import MadeRead
from voxload.readers.pasting.pasteplan import Place, Wanted
from voxload.readers.protocol import UNKNOWN_BYTES, Missing, ReadCost, Volume, VolumeInfo, check_box, closed, copy_cast
from voxload.readers.remote import Traffic
from voxload.readers.remote.coalesce import Piece, Range, plan_requests
from voxload.readers.remote.flight import Flight
from voxload.readers.remote.ranges import ObjectStamp
from voxload.readers.requests import Request, check_requests, read_wanted, wanted_in_place
from voxload.readers.scratch import address
from voxload.readers.storage.file import FileBytes
from voxload.readers.storage.readahead import FileRange, announce_all, fetching
from voxload.readers.storage.stamp import Stamp

_MOST_COSTS = 2**12
"""Boxes whose cost is remembered: those of blocks, not of crops at random."""

_OWN_BYTES, _TABLES = 2**14, 4
"""What a reader is counted for: by itself, and times its table."""


class NativeHdf5Reader:
    """Reads boxes of one HDF5 dataset; see the Reader contract.

    libhdf5 is asked for metadata only, and once: where the chunks lie and how they were filtered. Bytes are read,
    decoded and pasted by the process's team of threads, which hold neither h5py's lock nor the interpreter's.

    Parameters
    ----------
    source
        The file.
    missing
        What to do about chunks that were never written.
    lazy
        What libhdf5 tells of the dataset; it is closed with this reader.
    """

    def __init__(self, source: Source, missing: Missing, lazy: LazyMetadata | LoadedMetadata) -> None:
        self._source = source
        self._missing = missing
        self._lazy = lazy
        self._route = route = lazy.route
        self._info = replace(lazy.info, route="native")
        self._learnt: Metadata | None = None
        self._is_open = True
        self._checksums = checksums = load_checksums(self._info.location, lazy.grid)
        is_plain = not route.pipeline.steps and not route.pipeline.is_shuffled
        with translated(self._info.location.path):
            self._file = source.ranges(may_map=is_plain)
        self._subject = subject = str(self._info.location)
        can_locate = route.offset is None and self._file.map is not None
        volume = ChunkedVolume(
            subject,
            route.shape,
            route.pipeline,
            self._chunk,
            expect=self._expect,
            locate=self._locate if can_locate else None,
            identify=self._identify,
        )
        self._natives: dict[np.dtype[Any], NativeReads | None] = {}
        self._mapped: MappedReads | None = None
        self._costs: dict[Box, ReadCost] = {}
        self._volume = verified(volume, checksums, str)
        if isinstance(self._file, FileBytes) and self._file.is_local and self._file.map is None:
            self._volume = replace(self._volume, native=self._native)  # which compares with the checksums itself

    def describe(self) -> VolumeInfo:
        """Return what is known of the volume."""
        return self._info

    @property
    def traffic(self) -> Traffic | None:
        """What was asked of the storage, since the file was opened; None of local files."""
        return self._source.traffic

    @property
    def held_bytes(self) -> int:
        """About as many bytes as this holds: of its table, and of reads of all of it that are made again."""
        if self.traffic is not None or (self._table is None and self._lazy.grid is not None):
            return UNKNOWN_BYTES  # blocks of an object, or what libhdf5 holds until it is asked
        return _OWN_BYTES + (0 if self._table is None else _TABLES * self._table.nbytes)

    def cost(self, box: Box) -> ReadCost:
        """Return chunks and bytes of `box`; contiguous storage counts the box's own bytes."""
        cost = self._costs.get(box)
        if cost is None:
            check_box(self._info, box)
            if len(self._costs) >= _MOST_COSTS:
                self._costs.clear()
            cost = self._costs[box] = self._metadata().cost(box)
        return cost

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box` into `out`; only its chunks, or the pages of its rows, are read."""
        self.read_many([Request(box, out)])

    def read_many(self, requests: Sequence[Request]) -> None:
        """Read many boxes; a chunk that several want is decoded once."""
        if requests and self._read_again(requests):
            return
        check_requests(self._info, requests)
        subject = f"{self._subject}, box {requests[0].box}" if requests else self._subject
        with translated(subject), with_slot(is_local=self.traffic is None):
            self._source.stamp.check_unchanged()
            self._file.check_unchanged()
            metadata = self._metadata()
            for request in requests:
                metadata.require(request.box, self._missing)
            read_wanted(self._info, metadata.order, requests, self._read)
        self._remember(requests, metadata.order)

    def made_read(self, requests: Sequence[Request], base: int) -> MadeRead | None:
        """See Repeatable."""
        stamp = self._source.stamp
        if not (isinstance(self._file, FileBytes) and self._file.is_local) or stamp != self._file.stamp:
            return None
        metadata = self._metadata()
        wanted = wanted_in_place(self._info, metadata.order, requests)
        if not wanted or not (stamp.is_settled and self._file.stamp.is_settled):
            return None
        if self._route.offset is not None:
            return None if self._mapped is None else self._mapped.made(wanted, base)
        native = self._native(wanted[0].view.dtype)
        table = metadata.table
        if native is None or table is None:
            return None
        return native.made(wanted, base, axes=VolumeAxes.of(metadata.order.axes, table.cost))

    def generation(self, box: Box) -> Generation | None:  # noqa: ARG002 - of a file there is one
        """See Dated; the file's, or the object's by one request."""
        return Generation.of([self._source.now()])

    def is_outdated(self) -> bool:
        """See Dated; of an object never, since each request names the version that it wants."""
        stamps = (self._source.stamp, self._file.stamp)
        return is_outdated(stamp for stamp in stamps if isinstance(stamp, Stamp))

    def stored_chunks(self) -> StoredChunks | None:
        """Return the chunks as they are stored; None when storage is contiguous."""
        metadata = self._metadata()
        if metadata.grid is None:
            return None

        def decode(_place: Place, fetched: Fetched) -> None:
            self._route.pipeline.decode(fetched.data, mask=fetched.mask)

        expect = self._volume.expect if self.traffic else None
        return StoredChunks(metadata.grid, self._route.shape.extents, self._volume.fetch, decode, str, expect)

    def close(self) -> None:
        """Close the file."""
        self._is_open = False
        self._natives, self._mapped, self._costs = {}, None, {}
        self._file.close()
        self._lazy.close()

    def _metadata(self) -> Metadata:
        if not self._is_open:
            raise closed(self._info)
        if self._learnt is None:
            with translated(self._subject):
                self._learnt = self._lazy.metadata()
        return self._learnt

    @property
    def _table(self) -> ChunkTable | None:
        """Where the chunks lie, once that was asked."""
        return None if self._learnt is None else self._learnt.table

    def _read(self, wanted: list[Wanted]) -> None:
        route = self._route
        if route.offset is None:
            self._volume.read_all(wanted, fill=self._fill)
            return
        if self._file.map is None:
            expect = self._expect_spans if self.traffic else None
            SpanVolume(self._subject, route.shape, self._file, route.offset, expect).read_all(wanted)
            return
        whole = self._file.read(route.offset, route.pipeline.nbytes)
        if self._mapped is None and isinstance(self._file.stamp, Stamp):
            self._mapped = MappedReads(route.shape, whole, self._file.stamp, offset=route.offset)
        stored = FileRange(self._file, route.offset, route.pipeline.nbytes)
        ContiguousVolume(self._subject, route.shape, whole, stored).read_all(wanted)

    def _again(self, dtype: np.dtype[Any] | None) -> NativeReads | MappedReads | None:
        """Return what makes reads as a type again by one call."""
        if self._route.offset is None:
            return self._natives.get(dtype) if dtype is not None and chunk_cache() is None else None
        return self._mapped

    def _read_again(self, requests: Sequence[Request]) -> bool:
        """Make a read that was made before by one call; False where it must be made as if new."""
        again = self._again(getattr(requests[0].out, "dtype", None))
        return again is not None and again.read_again(requests)

    def _remember(self, requests: Sequence[Request], order: AxisOrder) -> None:
        """Remember a read that can be made by one call."""
        again = self._again(requests[0].out.dtype) if requests and self._source.stamp == self._file.stamp else None
        if again is not None and (wanted := wanted_in_place(self._info, order, requests)):
            again.remember(requests, wanted)

    def _native(self, target: np.dtype[Any]) -> NativeReads | None:
        """Return what reads chunks as `target` by one call."""
        if target not in self._natives:
            table, file = self._table, self._file
            if table is None or self._lazy.grid is None or not isinstance(file, FileBytes):
                return None
            pipeline, grid = self._route.pipeline, self._lazy.grid
            source = TableSource(
                file, offsets=table.offsets, sizes=table.sizes, masks=table.masks, nbytes=pipeline.nbytes
            )
            volume = NativeVolume.of(
                self._route.shape, pipeline, source, grid=grid, target=target, checksums=self._checksums
            )
            self._natives[target] = None if volume is None else NativeReads(volume)
        return self._natives[target]

    @contextmanager
    def _expect(self, places: Sequence[Place]) -> Iterator[Fetch]:
        """Let chunks come ahead of their use: announced where they lie on this node, else by many requests at once."""
        if self._file.is_local:
            yield fetching(places, self._where, self._chunk)
            return
        stored = {place: at for place in places if self._table and (at := self._table.find(place)) is not None}
        pieces = [Piece(place, self._file.path, at.offset, at.offset + at.size) for place, at in stored.items()]
        with Flight(plan_requests(pieces), lambda request: self._file.fresh(request.start, request.size)) as flight:
            yield lambda place: Fetched(flight.taken(place), stored[place].mask) if place in stored else None

    @contextmanager
    def _expect_spans(self, ranges: Sequence[Range]) -> Iterator[Take]:
        """Let spans of contiguous storage come ahead of their use, by many requests at once."""
        pieces = [Piece((number,), self._file.path, start, stop) for number, (start, stop) in enumerate(ranges)]
        with Flight(plan_requests(pieces), lambda request: self._file.fresh(request.start, request.size)) as flight:
            yield lambda number: flight.taken((number,))

    def _where(self, place: Place) -> FileRange | None:
        """Return where a chunk lies."""
        at = self._table.find(place) if self._table else None
        return None if at is None else FileRange(self._file, at.offset, at.size)

    def _chunk(self, place: Place) -> Fetched | None:
        """Return a chunk as stored."""
        found = self._table.find(place) if self._table else None
        if found is None:
            return None
        expected = self._route.pipeline.nbytes
        if not self._route.pipeline.steps and found.size != expected:
            raise DataError(found=f"{found.size} bytes", expected=f"{expected}")
        return Fetched(self._file.read(found.offset, found.size), found.mask)

    def _identify(self, places: Sequence[Place]) -> list[Identity | None]:
        """Tell chunks from all others; of a file that was written to just now, from none."""
        stamp, dataset = self._file.stamp, self._info.location.dataset
        source = (stamp.path, stamp.version) if isinstance(stamp, ObjectStamp) else stamp
        return [Identity(source, (dataset, place)) if stamp.is_settled else None for place in places]

    def _locate(self, places: Sequence[Place]) -> Mapped | None:
        """Return where chunks that are stored as they are lie in the map; None when one is not as it should be."""
        table, whole, length = self._table, self._file.map, self._route.pipeline.nbytes
        if table is None or whole is None:
            return None
        offsets, sizes = table.look_up(places)
        is_there = sizes >= 0
        if (sizes[is_there] != length).any() or not self._file.holds(offsets[is_there], length):
            return None
        announce_all(places, self._where)
        return Mapped(np.where(is_there, offsets + np.uint64(address(whole)), np.uint64(0)), (whole,))

    def _fill(self, view: Volume) -> None:
        copy_cast(view, np.asarray(self._metadata().fill_value))
