"""SideCars: files of targets beside the raw files, as text, Parquet, JSON or YAML."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from voxload.convert.sources.libraries import library
from voxload.convert.targets.cells import finite_number, table_of_cells, table_of_mapping
from voxload.convert.targets.table import FolderTargets, TargetTable
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.files.limits import TABLE
from voxload.files.parquet import read_table
from voxload.files.regular import check_regular, open_regular, parse_json, read_text
from voxload.readers.faults import translated

_OBJECT = 8
"""Bytes that a byte of text takes as Python's objects, a string for each cell."""
_DELIMITERS = ",;\t"
_KNOWN_COLUMNS = (
    (
        re.compile(r"params_(\w+_)?(IllustrisTNG|SIMBA|Astrid)\.txt"),
        ("Omega_m", "sigma_8", "A_SN1", "A_AGN1", "A_SN2", "A_AGN2"),
    ),
    (re.compile(r"latin_hypercube_params\.txt"), ("Omega_m", "Omega_b", "h", "n_s", "sigma_8")),
)
"""Columns of files that have no header, by name and number. Source: the documentation of the CAMELS Multifield
Dataset and of the Quijote simulations."""


def read_csv(path: Path) -> TargetTable:
    """Return the table of a CSV file, whose delimiter is the first of ``,``, ``;`` and tab that its header has."""
    with translated(f"{path}"), _opened(path, "utf-8-sig", newline="") as file:
        header = file.readline()
        delimiter = next((mark for mark in _DELIMITERS if mark in header), ",")
        file.seek(0)
        try:
            rows = [row for row in csv.reader(file, delimiter=delimiter, strict=True) if row]
        except csv.Error as error:
            raise DataError(f"{path}", found=str(error), expected="a CSV file") from error
    if not rows:
        raise DataError(f"{path}", found="an empty file", expected="a header row and a row for each sample")
    return table_of_cells(f"{path}", [column.strip() for column in rows[0]], rows[1:])


def read_columns(path: Path) -> TargetTable:
    """Return the table of a file of whitespace columns, whose names its last comment before the rows may hold."""
    header: list[str] = []
    rows: list[list[str]] = []
    with translated(f"{path}"), _opened(path, "utf-8") as file:
        for line in file:
            text, _, comment = line.partition("#")
            if text.split():
                rows.append(text.split())
            elif comment.split() and not rows:
                header = comment.split()
    if not rows:
        raise DataError(f"{path}", found="no row", expected="a row for each sample")
    width = len(rows[0])
    return table_of_cells(f"{path}", header if len(header) == width else _columns(path.name, width), rows)


@contextmanager
def _opened(path: Path, encoding: str, *, newline: str | None = None) -> Iterator[TextIO]:
    """Open a table of text for reading, unless it would take more memory than a table may."""
    with open_regular(path) as file, io.TextIOWrapper(file, encoding, newline=newline) as text:
        size = os.fstat(file.fileno()).st_size
        TABLE.check(f"{path}", _OBJECT * size, "a table of text, as Python's objects")
        yield text


def _columns(name: str, width: int) -> list[str]:
    """Return the columns of a file without a header: its data set's own, else numbered ones."""
    for pattern, columns in _KNOWN_COLUMNS:
        if pattern.fullmatch(name) and len(columns) == width:
            return list(columns)
    return [f"target_{place}" for place in range(width)]


def read_parquet(path: Path) -> TargetTable:
    """Return the table of a Parquet file."""
    with translated(f"{path}"):
        table = read_table(path)
        columns = [column.to_pylist() for column in table.columns]
    return table_of_cells(f"{path}", table.column_names, list(zip(*columns, strict=True)))


_NAMES = "namePar"
_VALUES = ("unitPar", "physPar")
"""Keys of the values: those scaled to [-1, 1], which raw universes hold too, else the physical ones."""


def read_json(path: Path) -> TargetTable:
    """Return the targets in a JSON file."""
    with translated(f"{path}"):
        text = read_text(path)
        try:
            return _table(path, parse_json(text, object_pairs_hook=lambda pairs: _once(path, pairs)))
        except json.JSONDecodeError as error:
            raise DataError(f"{path}", found=str(error), expected="JSON") from error


def read_yaml(path: Path) -> TargetTable:
    """Return the targets in a YAML file."""
    yaml = library("yaml", f"{path}")
    loader: Any = type("Loader", (yaml.SafeLoader,), {})
    loader.add_constructor(
        yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG,
        lambda own, node: _once(path, own.construct_pairs(node, deep=True)),
    )
    with translated(f"{path}"):
        text = read_text(path)
        try:
            return _table(path, yaml.load(text, Loader=loader))
        except yaml.YAMLError as error:
            raise DataError(f"{path}", found=str(error).replace("\n", " "), expected="YAML") from error


def _once(path: Path, pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return pairs as a mapping; a key that comes again would hide the first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DataError(f"{path}", found=f"{twice!r} more than once", expected="each name once")
    return found


def _table(path: Path, document: object) -> TargetTable:
    if not isinstance(document, Mapping):
        raise DataError(
            f"{path}", found=f"a {type(document).__name__}", expected="a mapping from sample to targets, or cosmoMeta"
        )
    if _NAMES not in document:
        return table_of_mapping(f"{path}", document)
    return _folder_targets(path, document)


def _folder_targets(path: Path, document: Mapping[str, Any]) -> FolderTargets:
    """Return the parameters of one simulation. Source: cosmoMeta.yaml as NERSC/cosmoflow-sims writes it."""
    key = next((key for key in _VALUES if key in document), _VALUES[0])
    names, values = document[_NAMES], document.get(key)
    if not isinstance(names, list) or not isinstance(values, list) or not 0 < len(names) == len(values):
        raise DataError(f"{path}", found=f"{_NAMES} {names!r}, {key} {values!r}", expected="a value for each name")
    pairs = [(str(name), finite_number(f"{path}, {name}", value)) for name, value in zip(names, values, strict=True)]
    return FolderTargets(_once(path, pairs))


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


class SideCars:
    """Tables of targets, each read once; for one thread.

    Parameters
    ----------
    source
        A table's file, the name of a file that lies beside the cubes or in a folder above them, or the targets
        themselves.
    root
        What is converted; nothing is looked for above it.
    """

    def __init__(self, source: Path | Mapping[str, Mapping[str, float]], root: Path) -> None:
        self._name = source if isinstance(source, Path) else Path()
        self._root = root if root.is_dir() else root.parent
        self._found: dict[Path, TargetTable] = {}
        if isinstance(source, Path):
            check_regular(source)
        is_one = not isinstance(source, Path) or source.is_file()
        self._one = read_targets(source) if is_one else None

    def table_of(self, cube: Path) -> TargetTable:
        """Return the table that is nearest to a cube's file; raises NotFoundError where there is none."""
        if self._one is not None:
            return self._one
        folder = cube.parent
        while True:
            path = folder / self._name.name
            if path.is_file():
                if path not in self._found:
                    self._found[path] = read_targets(path)
                return self._found[path]
            if folder.resolve() == self._root.resolve() or folder == folder.parent:
                break
            folder = folder.parent
        raise NotFoundError(
            "--targets",
            found=f"no {self._name}, and no {self._name.name} beside {cube} or above it up to {self._root}",
            expected="a table of targets",
        )
