"""ChecksumFile: the Parquet file that keeps the checksums of many volumes.

===========  ==================  =====================================================================
column       type                meaning
===========  ==================  =====================================================================
``sample``   string              sample id, as in the catalogue
``dataset``  string              dataset name, as in the catalogue; empty where files hold one array
``origin``   string              what the volume was made of when its chunks were summed; may be empty
``grid``     list of int64       chunks along each axis, in stored axis order
``crc32c``   list of uint32      one number a chunk, the last axis fastest; null where none was written
===========  ==================  =====================================================================

One row a volume, sorted by sample. A row group holds the rows of some tens of volumes, so that one sample costs one
row group, about 256 KiB, while the footer, which is read once a process, stays small with any number of samples. The
statistics of the column ``sample`` say which row group that is. Pages and the footer carry checksums of their own.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from voxload.errors import DataError
from voxload.files.limits import TABLE
from voxload.files.parquet import check_size
from voxload.readers.chunks.checksums import ChecksumRow, Checksums
from voxload.readers.chunks.sealedparquet import METADATA, read_sealed
from voxload.readers.faults import storage_error
from voxload.readers.protocol import ChecksumSource
from voxload.readers.remote import RemoteStore
from voxload.readers.storage.stamp import Stamp
from voxload.readers.store import is_url

SCHEMA = pa.schema(
    {
        "sample": pa.string(),
        "dataset": pa.string(),
        "origin": pa.string(),
        "grid": pa.list_(pa.int64()),
        "crc32c": pa.list_(pa.uint32()),
    },
    metadata=METADATA,
)
"""Columns of the file."""

_KEY = ("sample", "dataset")
_LARGEST_GRID = 2**40
"""Chunks of a volume, at most: beyond any storage, and below where products overflow."""


class ChecksumFile:
    """A file of checksums, read row group by row group; one thread at a time.

    Parameters
    ----------
    path
        The Parquet file, or its URL.

    Raises
    ------
    DataError
        When there is no such file, or it is damaged; every method raises it too, naming the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        with _reading(path):
            self._footer = _remote_footer(path) if is_url(path) else _local_footer(path)
        self._group: tuple[int, Mapping[tuple[str, str], int]] = (-1, {})
        self._table: pa.Table | None = None

    def origins(self) -> dict[tuple[str, str], str]:
        """Return what each volume, by sample and dataset, was made of; reads no checksum."""
        with _reading(self._path):
            columns = self._read(range(len(self._footer.bounds)), (*_KEY, "origin"))
            samples, datasets, origins = (columns.column(name).to_pylist() for name in (*_KEY, "origin"))
            return dict(zip(zip(samples, datasets, strict=True), origins, strict=True))

    def find(self, sample: str, dataset: str) -> ChecksumRow | None:
        """Return the row of one volume, or None; reads its row group, unless it was the last one read."""
        with _reading(self._path):
            for group, (first, last) in enumerate(self._footer.bounds):
                if not first <= sample <= last:
                    continue
                row = self._rows(group).get((sample, dataset))
                if row is not None:
                    return self._row(group, row)
            return None

    def _rows(self, group: int) -> Mapping[tuple[str, str], int]:
        """Return where the volumes of a row group stand in it."""
        if self._group[0] != group:
            names = self._read([group], _KEY)
            keys = zip(*(names.column(name).to_pylist() for name in _KEY), strict=True)
            self._group, self._table = (group, {(a, b): row for row, (a, b) in enumerate(keys)}), None
        return self._group[1]

    def _row(self, group: int, row: int) -> ChecksumRow:
        if self._table is None:
            self._table = self._read([group], SCHEMA.names).combine_chunks()
        values = {name: self._table.column(name).chunk(0).slice(row, 1) for name in SCHEMA.names}
        grid = tuple(int(count) for count in values["grid"].flatten().to_pylist())
        flat = values["crc32c"].flatten()
        if not grid or min(grid) < 1 or max(grid) > _LARGEST_GRID or prod(grid) != len(flat):
            raise ValueError(f"{len(flat)} checksums for a grid of {grid}")
        numbers = flat.fill_null(0).to_numpy().reshape(grid)
        present = flat.is_valid().to_numpy(zero_copy_only=False).reshape(grid)
        sample, dataset, origin = (str(values[name][0].as_py()) for name in (*_KEY, "origin"))
        return ChecksumRow(sample, dataset, origin, Checksums(numbers, present, self._path))

    def _read(self, groups: range | list[int], columns: Any) -> pa.Table:
        """Return columns of row groups in the types of the schema."""
        metadata, data = self._footer.metadata, self._footer.data
        check_size(self._path, metadata, groups=groups, file=None if data is None else io.BytesIO(data))
        source = self._path if data is None else pa.BufferReader(data)
        with pq.ParquetFile(source, metadata=metadata, page_checksum_verification=True) as file:
            found = file.read_row_groups(list(groups), columns=list(columns), use_threads=False)
        return found.select(list(columns)).cast(pa.schema([SCHEMA.field(name) for name in columns]))


def read_checksums(source: ChecksumSource) -> Checksums:
    """Return the checksums of one volume; reads one row group.

    Raises DataError when the file is not there, damaged, or lacks the volume.
    """
    row = ChecksumFile(source.path).find(source.sample, source.dataset)
    if row is None:
        raise DataError(
            source.path,
            found=f"no checksums of sample {source.sample!r}, dataset {source.dataset!r}",
            expected="those that the catalogue promises",
            remedy=_REMEDY,
        )
    return row.checksums


@dataclass(frozen=True, slots=True)
class _Footer:
    """What the footer of a file says."""

    metadata: Any
    """As pyarrow has it."""
    bounds: tuple[tuple[str, str], ...]
    """First and last sample of each row group."""
    data: bytes | None = None
    """The whole file, where it is behind a URL: it is small beside what it is of, and asked for by one request."""


def _local_footer(path: str) -> _Footer:
    stamp = Stamp.of(path)
    return _kept_footer(path, stamp) if stamp.is_settled else _footer(path)


@lru_cache(maxsize=4)
def _kept_footer(path: str, stamp: Stamp) -> _Footer:  # noqa: ARG001 - a file that changed is another one
    return _footer(path)


def _remote_footer(url: str) -> _Footer:
    facts = RemoteStore(url).facts("")
    if facts is None:
        raise FileNotFoundError(url)
    return _kept_object(url, facts.text) if facts.version and facts.is_settled else _object(url)


@lru_cache(maxsize=4)
def _kept_object(url: str, version: str) -> _Footer:  # noqa: ARG001 - an object that changed is another one
    return _object(url)


def _object(url: str) -> _Footer:
    part = RemoteStore(url).whole("", TABLE.allowed)
    if part is None:
        raise FileNotFoundError(url)
    return _footer(url, part.data.tobytes())


def _footer(path: str, data: bytes | None = None) -> _Footer:
    metadata = read_sealed(Path(path) if data is None else data)
    place = metadata.schema.names.index("sample")
    bounds = []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(place).statistics
        if statistics is None or not statistics.has_min_max:
            raise ValueError("a row group without the bounds of its samples")
        bounds.append((str(statistics.min), str(statistics.max)))
    return _Footer(metadata, tuple(bounds), data)


_REMEDY = "copy it again, or remove it and record checksums anew with voxload verify --write"


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn what pyarrow raises at a file that is damaged or not there into DataError."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise DataError(path, found="no such file", expected="the checksums of a catalogue", remedy=_REMEDY) from error
    except PermissionError as error:
        raise storage_error(path, error) from error
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        lines = str(error).splitlines()
        found = lines[0] if lines else type(error).__name__
        raise DataError(path, found=found, expected="a complete file of checksums", remedy=_REMEDY) from error
