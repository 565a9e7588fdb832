"""Outline: what a catalogue says of itself, from its table alone; of a million rows in as little time as of ten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from voxload.catalog.places import Folder
from voxload.display.description import Description
from voxload.display.table import Listing, cut, extents, joined, several
from voxload.units import format_bytes

_LOOKED_AT = 2_000
"""Rows whose shapes and types are looked at."""
_ROWS = 6
"""Rows that are shown."""
_TARGETS = 3
"""Targets of them that are shown."""


def catalog_description(
    table: pa.Table, root: Folder, *, samples: int, datasets: Sequence[str], targets: Sequence[str]
) -> Description:
    """Return what is said of a catalogue; opens none of the files that it names.

    Parameters
    ----------
    table
        With the columns of a catalogue.
    root
        Its folder.
    samples
        How many there are.
    datasets, targets
        Their names.
    """
    rows = int(table.num_rows)
    stored = int(pc.sum(table.column("stored_bytes")).as_py() or 0)
    forms = _forms(table)
    first = "" if rows <= _LOOKED_AT else f" (of the first {_LOOKED_AT:,} rows)"
    facts = {
        "samples": f"{samples:,}",
        "volumes": f"{rows:,}, {format_bytes(stored)} as stored",
        "datasets": joined(name or "(unnamed)" for name in datasets),
        "shapes and types": f"{joined(forms, 4)}{first}" if forms else "",
        "targets": joined(targets),
        "cut from universes": _given(table, "universe"),
        "checksums": _given(table, "checksums"),
        "folder": str(root),
    }
    parts = [several(samples, "sample"), several(rows, "volume")]
    parts += [forms[0] if len(forms) == 1 and not first else f"{len(forms)}+ shapes and types"] if forms else []
    parts += [f"targets {joined(targets, 4)}"] if targets else []
    parts.append(f"{format_bytes(stored)} in {cut(root)}")
    return Description("Catalog", tuple(parts), facts, (_listing(table, targets),) if rows else ())


def _forms(table: pa.Table) -> list[str]:
    """Return the shapes and types of the first rows, each once."""
    some = table.select(["shape", "axes", "dtype"]).slice(0, _LOOKED_AT).to_pylist()
    return list(dict.fromkeys(f"{row['axes']} {extents(row['shape'])} {row['dtype']}" for row in some))


def _given(table: pa.Table, name: str) -> str:
    """Return how many rows say something in a column of texts."""
    count = int(pc.sum(pc.not_equal(table.column(name), "")).as_py() or 0)
    return f"{count:,} of {table.num_rows:,} volumes" if count else ""


def _listing(table: pa.Table, targets: Sequence[str]) -> Listing:
    """Return the first rows."""
    names = ("sample", "dataset", "shape", "dtype", "stored_bytes", *targets[:_TARGETS])
    some = table.select(list(names)).slice(0, _ROWS).to_pylist()
    rows = tuple(tuple(_text(name, row[name]) for name in names) for row in some)
    return Listing("First rows", names, rows, total=int(table.num_rows))


def _text(name: str, value: Any) -> str:
    if value is None:
        return "null"
    if name == "shape":
        return extents(value)
    if name == "stored_bytes":
        return format_bytes(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
