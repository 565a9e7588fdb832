"""Tables of the documents, which are written by hand and compared with what they speak of; and the tests they name."""

from __future__ import annotations

import ast
from functools import cache
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[2]


def rows(document: str, *columns: str) -> list[list[str]]:
    """Return the rows of the one table of docs/`document` that has these columns; each has a cell for each of them."""
    lines = (ROOT / "docs" / document).read_text(encoding="utf-8").splitlines()
    tables = [[_cells(line) for line in part] for is_table, part in groupby(lines, _is_row) if is_table]
    found = [table for table in tables if table[0] == list(columns)]
    assert len(found) == 1, f"{document}: found {len(found)} tables of the columns {columns}, expected one"
    _, rule, *below = found[0]
    assert rule == ["---"] * len(columns), rule
    for row in below:
        assert len(row) == len(columns), f"{document}: found {len(row)} cells, expected {len(columns)}: {row}"
    return below


def named_in(cell: str) -> list[str]:
    """Return the tests that a cell names, as FILE::FUNCTION: each in backquotes, with commas between them."""
    return [name.removeprefix("`").removesuffix("`") for name in cell.split(", ")]


@cache
def functions(path: Path) -> frozenset[str]:
    """Return the names of a file's functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def is_there(test: str, folder: Path) -> bool:
    """Tell whether FILE::FUNCTION, below a folder, is a function that pytest would collect as a test."""
    name, _, function = test.partition("::")
    path = folder / name
    are_tests = path.name.startswith("test_") and function.startswith("test_")
    return are_tests and path.is_file() and function in functions(path)


def _is_row(line: str) -> bool:
    return line.startswith("|")


def _cells(line: str) -> list[str]:
    assert line.endswith("|"), line
    return [cell.strip() for cell in line[1:-1].split("|")]
