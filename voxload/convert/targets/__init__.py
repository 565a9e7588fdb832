"""Targets that lie outside the raw files: tables, parameter files and metadata beside them."""

from voxload.convert.targets.reading import read_targets as read_targets
from voxload.convert.targets.table import TargetTable as TargetTable
