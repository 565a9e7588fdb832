"""Targets that lie outside the raw files.

In comes a table's file, or its name beside the cubes, out come the targets of a sample. Read `table`, the contract,
first; `files` reads CSV, columns, Parquet, JSON and YAML, `cells` makes tables of what it finds.
"""

from voxload.convert.targets.files import read_targets as read_targets
from voxload.convert.targets.table import TargetTable as TargetTable
