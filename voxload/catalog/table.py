"""Catalog: the table of samples, one row per stored volume, kept as Parquet.

=================  ==============  ==============================================================
column             type            meaning
=================  ==============  ==============================================================
``sample``         string          sample id; several rows share it when a sample has several volumes
``path``           string          file or folder, relative to the catalogue's own folder
``dataset``        string          name of the volume inside the file; empty where files hold one array
``shape``          list of int64   extents as stored, in the order of ``axes``
``dtype``          string          numpy name with byte order, such as ``<i2``
``axes``           string          a permutation of ``DHW`` or ``CDHW``: the order of the axes as stored
``stored_bytes``   int64           bytes of the volume in storage, compressed
``checksums``      string          Parquet file with the checksums of the volume's chunks, relative to the same
                                   folder; empty where there are none
``window``         list of int64   first voxel (d, h, w) of the sample in what is stored, where several samples share a
                                   volume, and ``shape`` is the sample's; null where it is all of it
``universe``       string          what the sample was cut from; empty where it is whole. Samples of one universe are
                                   never parted by a split into training and test
``origin``         list of int64   first voxel (d, h, w) of the sample in its universe; null where it is whole
``spacing``        list of double  distance of neighbouring voxels along (D, H, W) in mm; null where it is not known
``affine``         list of double  16 numbers: rows of the 4 x 4 matrix from voxel indices (d, h, w, 1) of the sample to
                                   mm to the patient's right, front and top (RAS); null where it is not known
``coordinates_d``  list of double  what the file has along D, such as levels, a number for each voxel; null, or no such
                                   column, where it has none. So ``coordinates_h`` and ``coordinates_w``
``statistics``     struct          figures of the voxels for normalisation, see `statistics`; may be null
``generation``     int64           which append the row came by, of a catalogue that grows, see `append`
any other number   float64         one target a column; equal in all rows of a sample
=================  ==============  ==============================================================

The columns from ``checksums`` to ``generation`` may be left out. Any tool that writes Parquet can make a catalogue;
pandas and duckdb read it.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from voxload.catalog.columns import (
    COLUMNS,
    COORDINATES,
    check_columns,
    check_paths,
    column,
    column_of,
    conform,
    from_numbers,
    is_target,
    numbers,
)
from voxload.catalog.outline import catalog_description
from voxload.catalog.places import CATALOG_NAME, Folder, catalog_path, catalog_url, fetched, folder_of
from voxload.catalog.row_index import RowIndex
from voxload.catalog.statistics import VolumeSummary
from voxload.display.description import Described, Description
from voxload.errors import DataError, NotFoundError, StorageError, UsageError
from voxload.files.atomic import replacing
from voxload.files.parquet import read_table
from voxload.readers.store import is_url

_TUPLES = ("shape", "window", "origin", "spacing", "affine")
"""Columns of lists, which an entry has as tuples."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored volume of one sample: a row of the catalogue."""

    sample: str
    """Sample id."""
    path: str
    """File or folder, relative to the catalogue's folder, or absolute."""
    dataset: str
    """Name of the volume inside the file; empty where the file holds one array."""
    shape: tuple[int, ...]
    """Extents as stored, in the order of `axes`."""
    dtype: str
    """numpy type string with byte order, such as ``<i2``."""
    axes: str
    """Order of the axes as stored."""
    stored_bytes: int
    """Bytes of the volume in storage."""
    targets: Mapping[str, float] = field(default_factory=dict)
    """Target name to value; equal in every row of a sample."""
    checksums: str = ""
    """File with the checksums of the volume's chunks, relative to the catalogue's folder; empty without."""
    window: tuple[int, int, int] | None = None
    """First voxel (d, h, w) in what is stored, where several samples share it; None where the sample is all of it."""
    universe: str = ""
    """What the sample was cut from; empty where it is whole."""
    origin: tuple[int, int, int] | None = None
    """First voxel (d, h, w) in the universe; None where the sample is whole."""
    spacing: tuple[float, float, float] | None = None
    """Distance of neighbouring voxels along (D, H, W) in mm; None where it is not known."""
    affine: tuple[float, ...] | None = None
    """Rows of the 4 x 4 matrix from the sample's voxel indices (d, h, w, 1) to RAS in mm; None where not known."""
    coordinates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By axis, D, H or W, a number for each voxel along it, to write; `Catalog.whole` has them."""
    statistics: VolumeSummary | None = None
    """Figures of the voxels, to write; `Catalog.summary` reads them."""

    @property
    def volume(self) -> str:
        """Id of the stored volume in this catalogue: the sample's, or the path where samples share it."""
        return self.sample if self.window is None else self.path

    @property
    def summed_as(self) -> str:
        """Id under which the volume's checksums are kept, which stays when a catalogue moves and its paths change."""
        folder = os.path.dirname(self.checksums)  # noqa: PTH120 - a URL's, too
        if self.window is None or is_url(self.path) or os.path.isabs(self.path) or not folder:  # noqa: PTH117 - as above
            return self.volume
        return os.path.relpath(self.path, folder)


class Catalog(Described):
    """An immutable table of samples; safe to share between threads and cheap to send to processes.

    Parameters
    ----------
    table
        The columns listed at the top of this module, and targets.
    root
        The folder that relative paths count from, or its URL.
    allow_outside
        Whether volumes and checksums may lie outside of `root`: by ``..``, from the root on, behind a URL, or through
        a link, which is looked at when the volume is opened. Allow it of catalogues whose maker you trust: whatever
        is named there is read with your rights.

    Raises
    ------
    UsageError
        When a path leads out of `root` that must not.
    DataError
        When a column is missing, occurs twice, has nulls or the wrong type, or a sample names one dataset twice.
    """

    def __init__(self, table: pa.Table, root: Folder, *, allow_outside: bool = False) -> None:
        self.root = root
        self.allow_outside = allow_outside
        check_columns(table, root)
        self.target_names: tuple[str, ...] = tuple(column.name for column in table.schema if is_target(column))
        arrays = [conform(column_of(table, name), name, kind, root) for name, kind in COLUMNS.items()]
        arrays += [table.column(name) for name in self.target_names]
        self.table = pa.Table.from_arrays(arrays, names=[*COLUMNS, *self.target_names]).combine_chunks()
        own = set(self.table.column_names)
        self._plain = [(name, self.table.column(name)) for name in self.table.column_names if name != "statistics"]
        self._others = [(name, table.column(i)) for i, name in enumerate(table.column_names) if name not in own]
        self.index = RowIndex(self.table, root)
        """Which row is of which sample and dataset."""
        check_paths(self.table, root, allow_outside=allow_outside)

    @property
    def whole(self) -> pa.Table:
        """The table with all columns that were given, those too that say nothing to this class."""
        found = self.table
        for name, values in self._others:
            found = found.append_column(name, values)
        return found

    @classmethod
    def from_entries(cls, entries: Iterable[Entry], root: Folder, *, allow_outside: bool = False) -> Catalog:
        """Build a catalogue from rows; ids are sorted, so that equal rows give equal catalogues.

        Raises UsageError where a path leads out of `root` that must not, DataError when rows have different targets or
        a target is not finite.
        """
        rows = sorted(entries, key=lambda entry: (entry.sample, entry.dataset))
        names = list(rows[0].targets) if rows else []
        for entry in rows:
            if set(entry.targets) != set(names):
                raise DataError(
                    f"sample {entry.sample!r}",
                    found=f"targets {sorted(entry.targets)}",
                    expected=f"the targets of the other samples, {sorted(names)}",
                )
        columns: dict[str, Sequence[Any]] = {name: [getattr(entry, name) for entry in rows] for name in COLUMNS}
        columns["statistics"] = [entry.statistics and entry.statistics.to_row() for entry in rows]
        arrays = [column(columns[name], kind) for name, kind in COLUMNS.items()]
        arrays += [column([entry.targets[name] for entry in rows], pa.float64()) for name in names]
        along = [axis for axis in COORDINATES if any(axis in entry.coordinates for entry in rows)]
        arrays += [column([entry.coordinates.get(axis) for entry in rows], COLUMNS["spacing"]) for axis in along]
        named = [*COLUMNS, *names, *(COORDINATES[axis] for axis in along)]
        catalog = cls(pa.Table.from_arrays(arrays, names=named), root, allow_outside=allow_outside)
        catalog.check_targets(names)
        return catalog

    @classmethod
    def read(cls, path: str | Path, *, allow_outside: bool = False, has_statistics: bool = True) -> Catalog:
        """Read a catalogue from a Parquet file, the folder that holds one, or the URL of either.

        `allow_outside` is that of the class; what lies below the catalogue's own URL is inside.

        Without statistics, which take ten times the memory of all else, `summary` knows none.

        Raises
        ------
        UsageError
            When a path leads out of the catalogue's folder that must not.
        NotFoundError
            When there is no such file.
        DataError
            When it is not Parquet or lacks columns.
        """
        is_remote = isinstance(path, str) and is_url(path)
        place = catalog_url(str(path)) if is_remote else catalog_path(path)
        data = fetched(str(place)) if is_remote else None
        root = folder_of(str(place)) if is_remote else Path(place).parent
        try:
            table = read_table(place, without=() if has_statistics else ("statistics",), data=data)
            table.validate(full=True)  # or text that is none would only be noticed when it is used
            found = cls(table, root, allow_outside=allow_outside)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise _not_found(Path(place)) from error
        except PermissionError as error:
            raise StorageError(f"catalogue {place}", found="permission denied") from error
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"catalogue {place}",
                found=str(error).splitlines()[0].rstrip("."),
                expected="a complete Parquet file",
                remedy="name a catalogue, which voxload convert writes, or its folder; restore one that is damaged",
            ) from error
        del table, data
        pa.default_memory_pool().release_unused()  # of a million rows, as much as they take
        return found

    def write(self, path: str | Path) -> None:
        """Write the catalogue to `path`; it appears whole or not at all.

        Raises NotFoundError when there is no such folder, StorageError when it takes no file.
        """
        try:
            with replacing(Path(path)) as temporary:
                pq.write_table(self.whole, temporary, write_page_checksum=True)
        except FileNotFoundError as error:
            raise NotFoundError(f"catalogue {path}", found="no such folder", remedy="make the folder first") from error
        except OSError as error:
            raise StorageError(
                f"catalogue {path}", found=str(error).splitlines()[0], remedy="nothing was kept"
            ) from error

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def _described(self) -> Description:
        samples, names = len(self.index.samples), self.datasets
        return catalog_description(self.table, self.root, samples=samples, datasets=names, targets=self.target_names)

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """Sample id and dataset name of each row, in the order of the rows."""
        samples, datasets = (self.table.column(name).to_pylist() for name in ("sample", "dataset"))
        return tuple(zip(samples, datasets, strict=True))

    @property
    def datasets(self) -> tuple[str, ...]:
        """The dataset names that occur, sorted."""
        return tuple(self.index.datasets.to_pylist())

    @property
    def samples(self) -> tuple[str, ...]:
        """The sample ids, sorted."""
        return tuple(self.index.samples.to_pylist())

    def entry(self, sample: str, dataset: str) -> Entry:
        """Return the row of one volume without its statistics, which `summary` gives.

        Raises NotFoundError that lists the sample's datasets.
        """
        return self.entry_at(self.row(sample, dataset))

    def entry_at(self, row: int) -> Entry:
        """Return a row, by its number, without its statistics."""
        values = {name: values[row].as_py() for name, values in self._plain}
        targets = {name: _number(values.pop(name)) for name in self.target_names}
        lists = {name: values[name] and tuple(values[name]) for name in _TUPLES}
        return Entry(**{**values, **lists}, targets=targets)

    def row(self, sample: str, dataset: str) -> int:
        """Return the number of one volume's row; raises as `entry` does."""
        number, kind = self.index.sample(sample), self.index.dataset(dataset)
        row = None if number is None or kind is None else self.index.row(number, kind)
        if row is None:
            is_there = number is not None
            there = [name for name in self.datasets if is_there and self._has(number, name)]
            raise NotFoundError(
                f"sample {sample!r} in the catalogue",
                found=f"no dataset {dataset!r}",
                expected=f"one of {there}" if there else "a sample that is in the catalogue",
            )
        return row

    def _has(self, sample: int | None, dataset: str) -> bool:
        kind = self.index.dataset(dataset)
        return sample is not None and kind is not None and self.index.row(sample, kind) is not None

    def summary(self, sample: str, dataset: str) -> VolumeSummary | None:
        """Return the figures of one volume's voxels, or None where they are not known; raises as `entry` does."""
        found = self.table.column("statistics")[self.row(sample, dataset)].as_py()
        return None if found is None else VolumeSummary.from_row(found)

    def select(self, samples: Iterable[str]) -> Catalog:
        """Return the catalogue of those samples only; raises NotFoundError on an unknown id."""
        wanted = set(samples)
        unknown = wanted - set(self.samples)
        if unknown:
            raise NotFoundError("catalogue", found=f"no sample {min(unknown)!r}", remedy="see Catalog.samples")
        is_wanted = np.array([name in wanted for name in self.samples], bool)
        rows = np.flatnonzero(is_wanted[self.index.sample_of_row])
        return Catalog(self.whole.take(from_numbers(rows)), self.root, allow_outside=self.allow_outside)

    def check_targets(self, names: Iterable[str]) -> None:
        """Refuse targets that are null, not finite or not the same in all rows of a sample, naming the first such.

        Raises
        ------
        NotFoundError
            When a name is no target of this catalogue.
        DataError
            When a value is not finite: a network trained on it is lost without a message. When two rows of a
            sample differ: which of them is true?
        """
        for name in names:
            if name not in self.target_names:
                raise NotFoundError(
                    f"target {name!r}",
                    found="no such column in the catalogue",
                    expected=f"one of {list(self.target_names)}",
                )
            given = self.table.column(name)
            values = np.where(numbers(given.is_null().cast(pa.int8())), math.nan, numbers(given).astype(np.float64))
            sample_of = self.index.sample_of_row
            firsts = np.full(len(self.index.samples), len(values), np.int64)
            np.minimum.at(firsts, sample_of, np.arange(len(values)))
            first = values[firsts[sample_of]]
            wrong = np.flatnonzero(~np.isfinite(values) | (values != first))
            if len(wrong):
                row = int(wrong[0])
                value = given[row].as_py()
                is_finite = value is not None and math.isfinite(value)
                raise DataError(
                    f"target {name!r} of sample {self.table.column('sample')[row].as_py()!r}",
                    found=f"{given[int(firsts[sample_of[row]])].as_py()} and {value}" if is_finite else str(value),
                    expected="one value in all rows of the sample" if is_finite else "a finite number",
                    remedy="mend the value at its source or leave the sample out",
                )

    def check_not_empty(self) -> None:
        """Refuse a catalogue without rows."""
        if not len(self):
            raise UsageError("catalogue", found="no rows", expected="one sample or more")


def _not_found(path: Path) -> NotFoundError:
    """Return what tells someone who named a folder of raw files how a catalogue comes into being."""
    if path.name == CATALOG_NAME and path.parent.is_dir():
        return NotFoundError(
            f"folder {path.parent}",
            found=f"no {CATALOG_NAME} in it",
            expected="a catalogue, or a folder that holds one",
            remedy=f"of raw files make one first: voxload convert {shlex.quote(str(path.parent))} FOLDER",
        )
    return NotFoundError(f"catalogue {path}", found="no such file", remedy="check the path, or voxload convert")


def _number(value: float | None) -> float:
    """Return a target as float; a null becomes NaN, which check_targets refuses."""
    return math.nan if value is None else float(value)
