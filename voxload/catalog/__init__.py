"""Catalogues: the table of samples, what its voxels are like, and how it is merged, split, filtered and moved.

In comes Parquet that any tool may have written, out come `Catalog` (rows that are read) and `Rows` (tables that are
changed). Read table first. Doors: table, rows, statistics, checksums, figures; query/ has the conditions of --where.
"""

from voxload.catalog.append import Appended, append, note_failures, read_failures
from voxload.catalog.figures import FieldFigures, field_figures
from voxload.catalog.merge import merge
from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.query.conditions import filter_rows
from voxload.catalog.query.parser import parse
from voxload.catalog.rows import Rows, relocated, write_rows
from voxload.catalog.split import Grouping, split, universes_of
from voxload.catalog.table import Catalog, Entry, catalog_path

__all__ = [
    "CATALOG_NAME",
    "Appended",
    "Catalog",
    "Entry",
    "FieldFigures",
    "Grouping",
    "Rows",
    "append",
    "catalog_path",
    "field_figures",
    "filter_rows",
    "merge",
    "note_failures",
    "parse",
    "read_failures",
    "relocated",
    "split",
    "universes_of",
    "write_rows",
]
