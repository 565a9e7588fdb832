"""read_targets: the targets in a file, or in a mapping."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from voxload.convert.targets.cells import table_of_mapping
from voxload.convert.targets.documents import read_json, read_yaml
from voxload.convert.targets.parquet import read_parquet
from voxload.convert.targets.table import TargetTable
from voxload.convert.targets.textfiles import read_columns, read_csv
from voxload.errors import UsageError

_READERS: dict[str, Callable[[Path], TargetTable]] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".txt": read_columns,
    ".dat": read_columns,
    ".parquet": read_parquet,
    ".yaml": read_yaml,
    ".yml": read_yaml,
    ".json": read_json,
}


def read_targets(source: str | os.PathLike[str] | Mapping[str, Mapping[str, float]]) -> TargetTable:
    """Read targets from outside the raw files.

    Parameters
    ----------
    source
        A file whose suffix says what it is (CSV, whitespace columns in ``.txt``, Parquet, YAML or JSON), or a mapping
        from sample to target name to value. A column ``sample``, ``id``, ``name`` or ``file`` names the samples of a
        table; without one the row is the number of the sample, from 0. A YAML or JSON file is such a mapping, or the
        ``cosmoMeta.yaml`` of a CosmoFlow simulation, whose targets are those of every cube in its folder.

    Raises
    ------
    NotFoundError
        When there is no such file.
    UsageError
        When its suffix is unknown, or two of its columns might name the samples.
    DataError
        When it is damaged, names a sample twice, or holds what is no finite number.
    """
    if isinstance(source, Mapping):
        return table_of_mapping("targets", source)
    path = Path(source)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"{path}", found=f"suffix {path.suffix!r}", expected=f"one of {', '.join(_READERS)}")
    return reader(path)
