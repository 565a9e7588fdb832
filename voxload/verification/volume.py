"""VolumeCheck: one volume, read whole and judged chunk by chunk, its faults noted in a report."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from voxload.catalog.checksums import record_chunk
from voxload.catalog.table import Entry
from voxload.errors import VoxloadError
from voxload.geometry import Box
from voxload.readers.chunks.checksums import Checksums
from voxload.readers.chunks.storedchunks import ChunkSource, StoredChunks
from voxload.readers.faults import translated
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.protocol import Location, Missing, Reader, VolumeInfo
from voxload.readers.registry import open_reader
from voxload.readers.team import team

LISTED = 1000
"""Faults that a report lists; beyond them they are only counted, so that a lost file system fits into memory."""


class Check(enum.StrEnum):
    """What was done with a volume."""

    CHECKSUM = "checksum"
    """Every chunk as stored was compared with its checksum."""
    DECODED = "decoded"
    """Every chunk was decoded: finds what is missing or cut short, and a flipped bit where a codec notices it."""
    READ = "read"
    """All voxels were read: contiguous storage has nothing that could tell a wrong byte."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong."""

    sample: str
    """Sample id."""
    dataset: str
    """Dataset name."""
    file: str
    """File or folder of the volume."""
    chunk: tuple[int, ...] | None
    """Place in the grid of chunks, in stored axis order; None where the volume as a whole is at fault."""
    error: str
    """What is wrong, with a remedy where there is one."""


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """How far a verification is; counts bytes as stored."""

    sample: str
    """The sample that is being verified."""
    bytes_done: int
    """Bytes verified so far."""
    bytes_total: int
    """Bytes of all volumes, by the catalogue."""


@dataclass(slots=True)
class VerifyReport:
    """What a verification found; grows while it runs."""

    catalog: Path
    """The catalogue."""
    volumes: dict[Check, int] = field(default_factory=lambda: dict.fromkeys(Check, 0))
    """Volumes by what was done with them; one that could not be opened counts nowhere."""
    chunks: int = 0
    """Chunks read."""
    bytes_read: int = 0
    """Bytes read."""
    recorded: int = 0
    """Volumes that got checksums."""
    damaged: int = 0
    """Faults, those beyond the listed ones too."""
    faults: list[Fault] = field(default_factory=list)
    """The first `LISTED` faults."""
    seconds: float = 0.0
    """Time it took."""

    def note(self, fault: Fault) -> None:
        """Count a fault, and list it if there is room."""
        self.damaged += 1
        if len(self.faults) < LISTED:
            self.faults.append(fault)


Judge = Callable[[StoredChunks, Place], int]
"""Reads a chunk and returns its bytes as stored; raises when it is not as it should be."""

_BATCH = 512
"""Chunks between two reports of progress."""
_SLAB_BYTES = 2**26
"""What is read at once of contiguous storage, at most, unless one row of voxels is more."""


class VolumeCheck:
    """Judges one volume; for one thread, and the process's team of threads helps.

    Parameters
    ----------
    entry
        The volume's row in the catalogue.
    location
        Where it is, with its checksums if it has any.
    report
        Where faults and counts go.
    on_bytes
        Told how many bytes of the volume were read so far.
    """

    def __init__(
        self, entry: Entry, location: Location, *, report: VerifyReport, on_bytes: Callable[[int], None]
    ) -> None:
        self._entry = entry
        self._location = location
        self._report = report
        self._on_bytes = on_bytes
        self._done = 0

    def run(self, missing: Missing) -> Checksums | None:
        """Read the whole volume and note its faults; never raises for what is wrong with the volume.

        `missing` says whether chunks that were never written are faults; where there are checksums, these say it.

        Returns the checksums of a volume that had none, is stored in chunks, and has no fault; otherwise None.
        """
        faults = self._report.damaged
        sums = None
        try:
            with translated(str(self._location)):
                reader = open_reader(self._location, missing=Missing.FILL if self._entry.checksums else missing)
                try:
                    sums = self._read(reader, missing)
                finally:
                    reader.close()
        except VoxloadError as error:
            self._note(None, error)
        return sums if self._report.damaged == faults else None

    def _read(self, reader: Reader, missing: Missing) -> Checksums | None:
        chunks = reader.stored_chunks() if isinstance(reader, ChunkSource) else None
        if chunks is None:
            self._report.volumes[Check.READ] += 1
            self._read_slabs(reader)
            return None
        if self._entry.checksums:
            self._report.volumes[Check.CHECKSUM] += 1
            self._judge(chunks, _compare)
            return None
        self._report.volumes[Check.DECODED] += 1
        sums = Checksums.empty(chunks.grid)
        self._judge(chunks, partial(record_chunk, sums=sums, missing=missing))
        return sums

    def _judge(self, chunks: StoredChunks, judge: Judge) -> None:
        """Call `judge` for every chunk, by as many threads as there are."""
        places = chunks.places()
        while batch := list(itertools.islice(places, _BATCH)):
            task = self._judged(chunks, batch, judge)
            for place, error in sorted(task.faults, key=lambda fault: fault[0]):
                self._note(place, error)
            self._report.chunks += len(batch)
            self._count(sum(task.sizes))

    def _judged(self, chunks: StoredChunks, batch: Sequence[Place], judge: Judge) -> _Batch:
        """Judge some chunks, fetched ahead where that can be."""
        try:
            with chunks.ahead(batch) as near:
                task = _Batch(partial(judge, near), str(self._location))
                team().run(task, batch)
        except VoxloadError:
            # One that spoils all, such as a shard's index: asked for one by one, each chunk says what is wrong.
            task = _Batch(partial(judge, chunks), str(self._location))
            team().run(task, batch)
        return task

    def _read_slabs(self, reader: Reader) -> None:
        info = reader.describe()
        for slab in _slabs(info):
            out = np.empty((info.shape[0], *slab.shape), info.native_dtype)
            reader.read_into(slab, out)
            self._count(out.nbytes)

    def _count(self, size: int) -> None:
        self._report.bytes_read += size
        self._done += size
        self._on_bytes(self._done)

    def _note(self, chunk: Place | None, error: VoxloadError) -> None:
        entry = self._entry
        self._report.note(Fault(entry.sample, entry.dataset, self._location.path, chunk, str(error)))


class _Batch:
    """Chunks judged by many threads; a list takes what they append one by one."""

    def __init__(self, judge: Callable[[Place], int], subject: str) -> None:
        self._judge = judge
        self._subject = subject
        self.sizes: list[int] = []
        self.faults: list[tuple[Place, VoxloadError]] = []

    def __call__(self, place: Place) -> None:
        try:
            with translated(self._subject):
                self.sizes.append(self._judge(place))
        except VoxloadError as error:
            self.faults.append((place, error))


def _compare(chunks: StoredChunks, place: Place) -> int:
    """Judge a chunk by its checksum: fetching is comparing."""
    fetched = chunks.fetch(place)
    return 0 if fetched is None else len(fetched.data)


def _slabs(info: VolumeInfo) -> Iterator[Box]:
    """Cut a volume into boxes of whole planes or, where a plane is too large, of whole rows; pure."""
    depth, height, width = info.spatial
    row = info.shape[0] * width * info.dtype.itemsize
    rows = max(1, _SLAB_BYTES // row)
    planes, high = (rows // height, height) if rows >= height else (1, rows)
    for top, left in itertools.product(range(0, depth, planes), range(0, height, high)):
        yield Box((top, left, 0), (min(top + planes, depth), min(left + high, height), width))
