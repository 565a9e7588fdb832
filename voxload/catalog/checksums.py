"""Recording checksums: of one volume, and of many into one file, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from voxload.errors import DataError, StorageError, UsageError
from voxload.files.atomic import replacing
from voxload.readers.chunks.checksumfile import SCHEMA
from voxload.readers.chunks.checksums import ChecksumRow, Checksums
from voxload.readers.chunks.sealedparquet import seal
from voxload.readers.chunks.storedchunks import ChunkSource, StoredChunks
from voxload.readers.faults import translated
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.protocol import Location, Missing
from voxload.readers.registry import open_reader

ROW_GROUP = 2**16
"""Checksums of a row group, about: 256 KiB is read for one sample, and 100,000 samples of 2,048 chunks give 3,125
groups, whose footer takes a few hundred KiB."""


def checksums_name(catalog: Path) -> str:
    """Return the name of the file beside a catalogue that keeps its checksums.

    >>> checksums_name(Path("universes/catalog.parquet"))
    'catalog.checksums.parquet'
    """
    return f"{catalog.stem}.checksums.parquet"


def sum_volume(location: Location, *, missing: str | Missing = Missing.ERROR) -> Checksums:
    """Read and decode every chunk of a volume and return the checksums of what is stored.

    Decoding is the proof that what is summed is good: a checksum of damage would protect damage. It works in one
    thread that ends with it, so that no more than one stored and one decoded chunk are held, and not for longer.

    Parameters
    ----------
    location
        Where the volume is.
    missing
        Whether chunks that were never written are an error, or are recorded as such.

    Raises
    ------
    DataError
        Naming the chunk, when one is missing or cannot be decoded.
    UsageError
        When the volume is not stored in chunks.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="voxload-checksums") as thread:
        return thread.submit(_sum_volume, location, Missing.parse(missing)).result()


def _sum_volume(location: Location, missing: Missing) -> Checksums:
    reader = open_reader(location, missing=missing)
    try:
        chunks = reader.stored_chunks() if isinstance(reader, ChunkSource) else None
        if chunks is None:
            raise not_chunked(location)
        sums = Checksums.empty(chunks.grid)
        with translated(str(location)):
            for place in chunks.places():
                try:
                    record_chunk(chunks, place, sums, missing=missing)
                except DataError as error:
                    raise error.within(f"{location}, chunk {place}", remedy="copy or convert it again") from error
        return sums
    finally:
        reader.close()


def record_chunk(chunks: StoredChunks, place: Place, sums: Checksums, *, missing: Missing) -> int:
    """Fetch a chunk, note its checksum in `sums`, and decode it; return its bytes as stored.

    Raises DataError when it cannot be decoded, or is not there and `missing` is no filling.
    """
    fetched = chunks.fetch(place)
    if fetched is None:
        if missing is Missing.FILL:
            return 0
        raise DataError(
            f"no chunk {chunks.name(place)}",
            expected='every chunk stored, or missing="fill" (convert --missing fill) for those never written',
        )
    size = len(fetched.data)
    sums.record(place, fetched.data)
    chunks.decode(place, fetched)
    return size


def not_chunked(location: Location) -> UsageError:
    """Return the error of a volume that has no chunks to sum."""
    return UsageError(
        str(location),
        found="contiguous storage, whose reads are not made of chunks that a checksum could be of",
        expected="chunks, in HDF5 or Zarr",
        remedy="convert it with voxload convert --checksums",
    )


@contextmanager
def recording(path: Path) -> Iterator[Callable[[ChecksumRow], None]]:
    """Yield what appends a row to a new file at `path`, which appears whole at the end, or not at all.

    Rows must come sorted by sample; no more than one row group of them is held. An older file stays readable
    until it is replaced.

    Raises StorageError when the file system refuses.
    """
    try:
        with replacing(path) as temporary:
            with _writer(temporary) as writer:
                rows = _Rows(writer)
                yield rows.add
                rows.flush()
            seal(temporary)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"{path}", found=str(error).splitlines()[0], remedy="nothing was kept") from error


class _Rows:
    """Rows that wait for their row group to be full."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self._held: list[ChecksumRow] = []
        self._count = 0

    def add(self, row: ChecksumRow) -> None:
        """Append a row."""
        self._held.append(row)
        self._count += row.checksums.values.size
        if self._count >= ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        """Write what is held as a row group."""
        if self._held:
            self._writer.write_table(_table(self._held))
        self._held, self._count = [], 0


def _writer(path: Path) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        SCHEMA,
        compression="none",  # checksums do not compress
        use_dictionary=["dataset"],
        write_statistics=["sample"],
        write_page_checksum=True,
    )


def _table(rows: list[ChecksumRow]) -> pa.Table:
    """Return rows as a table; an absent chunk's checksum is null."""
    numbers = [pa.array(row.checksums.values.ravel(), mask=~row.checksums.present.ravel()) for row in rows]
    columns = {
        "sample": [row.sample for row in rows],
        "dataset": [row.dataset for row in rows],
        "origin": [row.origin for row in rows],
        "grid": [list(row.checksums.grid) for row in rows],
    }
    arrays = [pa.array(column, SCHEMA.field(name).type) for name, column in columns.items()]
    ends = pa.array([0, *(len(part) for part in numbers)], pa.int64()).to_numpy().cumsum().astype("int32")
    flat = pa.concat_arrays(numbers) if numbers else pa.array([], pa.uint32())
    return pa.Table.from_arrays([*arrays, pa.ListArray.from_arrays(pa.array(ends), flat)], schema=SCHEMA)
