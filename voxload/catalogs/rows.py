"""Rows: a catalogue's table with every column that its file has, also those that mean nothing to voxload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from voxload.catalog import Catalog, catalog_path
from voxload.parquet import read_table


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a catalogue; immutable."""

    table: pa.Table
    """The columns of `voxload.catalog`, in its types and order, and behind them all others."""
    folder: Path
    """The folder that relative paths count from."""
    targets: tuple[str, ...]
    """Names of the columns that are targets."""
    name: str = ""
    """Where they come from, for messages."""

    @classmethod
    def read(cls, path: str | Path, *, allow_outside: bool = False) -> Rows:
        """Read a catalogue, or that of a folder; takes and raises what `Catalog.read` does."""
        place = catalog_path(Path(path))
        Catalog.read(place, allow_outside=allow_outside)  # its messages tell a missing file from a damaged one
        return cls.of(read_table(place), place.parent, name=str(place))

    @classmethod
    def of(cls, table: pa.Table, folder: Path, *, name: str = "") -> Rows:
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
