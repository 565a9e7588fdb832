"""Tables of text: CSV with a header row, and whitespace columns as simulations write them."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from voxload.convert.targets.cells import table_of_cells
from voxload.convert.targets.table import TargetTable
from voxload.errors import DataError
from voxload.limits import TABLE
from voxload.readers.faults import translated
from voxload.regular import open_regular

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
