"""Tables of targets in Parquet files."""

from __future__ import annotations

from pathlib import Path

from voxload.convert.targets.cells import table_of_cells
from voxload.convert.targets.table import TargetTable
from voxload.parquet import read_table
from voxload.readers.faults import translated


def read_parquet(path: Path) -> TargetTable:
    """Return the table of a Parquet file."""
    with translated(f"{path}"):
        table = read_table(path)
        columns = [column.to_pylist() for column in table.columns]
    return table_of_cells(f"{path}", table.column_names, list(zip(*columns, strict=True)))
