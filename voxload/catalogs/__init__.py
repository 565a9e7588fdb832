"""Catalogues as tables: merged, split into training and test, filtered, and moved to other folders.

Every function takes and gives `Rows`, which keep the columns of other tools too; `write_rows` writes them.

>>> from voxload.catalogs import Rows, filter_rows, parse, split, write_rows
>>> rows = Rows.read("universes/catalog.parquet")  # doctest: +SKIP
>>> parts = split(filter_rows(rows, where=parse("Omega_m > 0.3")), {"train": 0.8, "test": 0.2})  # doctest: +SKIP
"""

from voxload.catalog import catalog_path
from voxload.catalogs.figures import FieldFigures, field_figures
from voxload.catalogs.filter import filter_rows
from voxload.catalogs.merge import merge
from voxload.catalogs.relocate import relocated
from voxload.catalogs.rows import Rows
from voxload.catalogs.split import Grouping, split
from voxload.catalogs.universes import universes_of
from voxload.catalogs.where import parse
from voxload.catalogs.write import write_rows

__all__ = [
    "FieldFigures",
    "Grouping",
    "Rows",
    "catalog_path",
    "field_figures",
    "filter_rows",
    "merge",
    "parse",
    "relocated",
    "split",
    "universes_of",
    "write_rows",
]
