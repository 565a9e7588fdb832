"""Catalogues for tests, written by plain pyarrow as another tool would write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from voxload.catalog import Rows


def table(samples: list[str], **columns: Any) -> pa.Table:
    """Return a catalogue's table with one row for each sample; a column of None is left out."""
    names: dict[str, Any] = {
        "sample": samples,
        "path": [f"{name}.zarr" for name in samples],
        "dataset": ["full"] * len(samples),
        "shape": [[4, 8, 8, 8]] * len(samples),
        "dtype": ["<i2"] * len(samples),
        "axes": ["CDHW"] * len(samples),
        "stored_bytes": [1000 + number for number in range(len(samples))],
    } | columns
    return pa.table({name: values for name, values in names.items() if values is not None})


def rows(samples: list[str], folder: Path = Path(), **columns: Any) -> Rows:
    """Return the rows of such a table."""
    return Rows.of(table(samples, **columns), folder, name="the catalogue")


def written(path: Path, samples: list[str], **columns: Any) -> Path:
    """Write such a table; make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(samples, **columns), path)
    return path


def lines(found: Rows) -> list[dict[str, Any]]:
    """Return the rows as plain values, sorted by id."""
    return sorted(found.table.to_pylist(), key=lambda row: (row["sample"], row["dataset"]))
