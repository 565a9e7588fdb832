"""Rows: a catalogue's table with every column that its file has, read, moved to another folder, and written whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from voxload.catalog.places import Folder, catalog_path, catalog_url, place_of
from voxload.catalog.table import Catalog
from voxload.errors import NotFoundError, StorageError, UsageError
from voxload.files.atomic import replacing
from voxload.files.parquet import read_table
from voxload.readers.storage.traversal import leaves
from voxload.readers.store import is_url


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a catalogue; immutable."""

    table: pa.Table
    """The columns of `voxload.catalog.table`, in its types and order, and behind them all others."""
    folder: Folder
    """The folder that relative paths count from, or its URL."""
    targets: tuple[str, ...]
    """Names of the columns that are targets."""
    name: str = ""
    """Where they come from, for messages."""

    @classmethod
    def read(cls, path: str | Path, *, allow_outside: bool = False) -> Rows:
        """Read a catalogue, or that of a folder or URL; takes and raises what `Catalog.read` does."""
        if isinstance(path, str) and is_url(path):
            there = Catalog.read(path, allow_outside=allow_outside)
            return cls.of(there.whole, there.root, name=catalog_url(path))
        place = catalog_path(Path(path))
        Catalog.read(place, allow_outside=allow_outside)  # its messages tell a missing file from a damaged one
        return cls.of(read_table(place), place.parent, name=str(place))

    @classmethod
    def of(cls, table: pa.Table, folder: Folder, *, name: str = "") -> Rows:
        """Return the rows of a table; raises DataError when it is no catalogue.

        What a schema says beyond names and types is dropped: pandas' notes about its index are wrong of other rows.
        """
        catalog = Catalog(table, folder, allow_outside=True)  # for its columns; `read` has looked at the paths
        own = [column for column in catalog.table.column_names if column not in catalog.target_names]
        others = [column for column in table.column_names if column not in own]
        arrays = [catalog.table.column(column) for column in own] + [_plain(table.column(column)) for column in others]
        return cls(pa.Table.from_arrays(arrays, names=[*own, *others]), folder, catalog.target_names, name)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def samples(self) -> list[str]:
        """The sample id of each row."""
        return self.strings("sample")

    @property
    def stored_bytes(self) -> int:
        """Bytes of all rows' volumes in storage."""
        return sum(self.table.column("stored_bytes").to_pylist())

    def strings(self, column: str) -> list[str]:
        """Return the values of a column of strings."""
        found: list[str] = self.table.column(column).to_pylist()
        return found

    def keep(self, mask: Sequence[bool] | pa.ChunkedArray) -> Rows:
        """Return the rows for which `mask` is true, in their order."""
        kept = mask if isinstance(mask, pa.ChunkedArray) else pa.array(mask, pa.bool_())
        return self.with_table(self.table.filter(kept))

    def with_table(self, table: pa.Table) -> Rows:
        """Return rows of the same folder with other values in the same columns."""
        return Rows(table, self.folder, self.targets, self.name)

    def with_column(self, name: str, values: Sequence[str]) -> Rows:
        """Return the rows with other values in a column of strings."""
        place = self.table.column_names.index(name)
        return self.with_table(self.table.set_column(place, name, pa.array(values, pa.string())))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without a dictionary, which would be another type in every catalogue."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


PATHS = ("path", "checksums")
"""Columns that hold paths."""


def relocated(rows: Rows, folder: Path) -> Rows:
    """Return the rows as they must stand in a catalogue in `folder`; absolute paths and URLs stay as they are.

    What lies below a URL is named by URLs of its own.
    """
    moved: Callable[[str], str]
    if isinstance(rows.folder, str):
        moved = partial(_below, rows.folder)
    elif folder.resolve() == rows.folder.resolve():
        return replace(rows, folder=folder)
    else:
        moved = _mover(rows.folder, folder)
    for column in PATHS:
        rows = rows.with_column(column, [moved(path) for path in _named(rows, column)])
    return replace(rows, folder=folder)


def names_outside(rows: Rows) -> bool:
    """Tell whether paths lead out of the catalogue's folder; such a catalogue is read where that is allowed."""
    return any(leaves(path) for column in PATHS for path in dict.fromkeys(rows.strings(column)))


def resolved(rows: Rows, column: str) -> list[str]:
    """Return where the paths of a column really lie; no path and URLs stay as they are."""
    if isinstance(rows.folder, str):
        return [_below(rows.folder, path) for path in _named(rows, column)]
    real = lru_cache(os.path.realpath)
    base = os.fspath(rows.folder)
    return [
        path if not path or is_url(path) else os.path.join(real(os.path.join(base, parent)), name)  # noqa: PTH118
        for path in _named(rows, column)
        for parent, name in [os.path.split(path.rstrip("/"))]
    ]


def _named(rows: Rows, column: str) -> list[str]:
    """Return the paths of a column; an empty one of a volume is the folder itself, one of checksums is none."""
    return [path or "." for path in rows.strings(column)] if column == "path" else rows.strings(column)


def _below(url: str, path: str) -> str:
    """Return the URL of what a catalogue behind a URL names; no path stays none."""
    return place_of(url, path) if path else path


def _mover(old: Path, new: Path) -> Callable[[str], str]:
    """Return what rewrites a path relative to `old` as one relative to `new`.

    Strings, for a path object of each of 262,144 rows takes seconds. Both folders are taken without links: with
    ``..`` behind a link the system goes up from where the link leads to.
    """
    way = os.path.relpath(os.path.realpath(old), os.path.realpath(new))

    def moved(path: str) -> str:
        if not path or is_url(path) or os.path.isabs(path):  # noqa: PTH117
            return path
        if _goes_back(path):
            return os.path.join(way, path)  # noqa: PTH118 - as it is, for only the system knows where that leads
        return os.path.normpath(os.path.join(way, path))  # noqa: PTH118

    return lru_cache(maxsize=None)(moved)


def _goes_back(path: str) -> bool:
    """Tell whether a path goes down and up again, perhaps through a link."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    downs = [place for place, part in enumerate(parts) if part != ".."]
    return bool(downs) and ".." in parts[downs[0] :]


def write_rows(outputs: Mapping[Path, Rows], *, overwrite: bool = False) -> None:
    """Write catalogues under their paths, with the paths in them rewritten for where they are then.

    All are complete before the first gets its name.

    Raises
    ------
    UsageError
        When a name does not end in ``.parquet``, by which catalogues are known, or is taken and not to be overwritten.
    NotFoundError
        When there is no such folder.
    StorageError
        When a folder takes no file.
    """
    for path in outputs:
        check_output(path, overwrite=overwrite)
    at = Path()
    try:
        with ExitStack() as finishing:
            for at, rows in outputs.items():
                temporary = finishing.enter_context(replacing(at))
                pq.write_table(relocated(rows, at.parent).table, temporary, write_page_checksum=True)
    except OSError as error:
        raise StorageError(f"catalogue {at}", found=str(error).splitlines()[0], remedy="nothing was kept") from error


def check_output(path: Path, *, overwrite: bool) -> None:
    """Refuse a path that no catalogue may be written to, as `write_rows` does."""
    if path.suffix != ".parquet":
        raise UsageError(str(path), found="another ending", expected="a name that ends in .parquet")
    if not path.parent.is_dir():
        raise NotFoundError(f"catalogue {path}", found="no such folder", remedy="make the folder first")
    if path.is_dir():
        raise UsageError(f"catalogue {path}", found="a folder", expected="a name for a file")
    if (path.exists() or path.is_symlink()) and not overwrite:
        raise UsageError(
            f"catalogue {path}",
            found="a file of that name",
            expected="none",
            remedy="choose another name, or replace it with --overwrite",
        )
