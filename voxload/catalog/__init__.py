"""Catalogues: the table of samples, what its voxels are like, and how it is merged, split, filtered and moved.

In comes Parquet that any tool may have written, out come `Catalog` (rows that are read) and `Rows` (tables that are
changed). Read table first. Doors: table, rows, statistics, checksums, figures; append, merge and split, each with the
function of its name; query/ has the conditions of --where.

Names are loaded when they are first used: who only needs to know what a place or a statistic is does not wait for
pyarrow. None of them is a module's name, which would take its place.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from voxload.catalog.append import Appended as Appended
    from voxload.catalog.append import note_failures as note_failures
    from voxload.catalog.append import read_failures as read_failures
    from voxload.catalog.figures import FieldFigures as FieldFigures
    from voxload.catalog.figures import field_figures as field_figures
    from voxload.catalog.places import CATALOG_NAME as CATALOG_NAME
    from voxload.catalog.places import catalog_path as catalog_path
    from voxload.catalog.query.conditions import filter_rows as filter_rows
    from voxload.catalog.query.parser import parse as parse
    from voxload.catalog.rows import Rows as Rows
    from voxload.catalog.rows import relocated as relocated
    from voxload.catalog.rows import write_rows as write_rows
    from voxload.catalog.split import Grouping as Grouping
    from voxload.catalog.split import universes_of as universes_of
    from voxload.catalog.table import Catalog as Catalog
    from voxload.catalog.table import Entry as Entry

_HOMES = {
    "Appended": "append",
    "note_failures": "append",
    "read_failures": "append",
    "FieldFigures": "figures",
    "field_figures": "figures",
    "CATALOG_NAME": "places",
    "catalog_path": "places",
    "filter_rows": "query.conditions",
    "parse": "query.parser",
    "Rows": "rows",
    "relocated": "rows",
    "write_rows": "rows",
    "Grouping": "split",
    "universes_of": "split",
    "Catalog": "table",
    "Entry": "table",
}
"""The module of each name."""

__all__ = [
    "CATALOG_NAME",
    "Appended",
    "Catalog",
    "Entry",
    "FieldFigures",
    "Grouping",
    "Rows",
    "catalog_path",
    "field_figures",
    "filter_rows",
    "note_failures",
    "parse",
    "read_failures",
    "relocated",
    "universes_of",
    "write_rows",
]


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
