"""Script: the command line of a script, its samples' folder, and its rows as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Row = TypeVar("Row", bound=DataclassInstance)

ROOT = Path(__file__).resolve().parents[2]


def parser(doc: str | None, *, folder: str = "", size: int = 0, rounds: int = 0) -> argparse.ArgumentParser:
    """Return a command line with ``--json``, and with what is given a value.

    Parameters
    ----------
    doc
        The script's own documentation.
    folder
        What is kept in ``--folder``.
    size
        Default of ``--size``, in voxels along each axis.
    rounds
        Default of ``--rounds``.
    """
    found = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if folder:
        found.add_argument("--folder", type=Path, help=f"where {folder} are kept (default: a temporary folder)")
    if size:
        found.add_argument("--size", type=number, default=size, help=f"voxels along each axis (default {size})")
    if rounds:
        found.add_argument("--rounds", type=number, default=rounds, help=f"times that each is run (default {rounds})")
    found.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return found


def names(*known: str) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of comma-separated names out of `known`."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(text.split(","))
        strange = [name for name in found if name not in known]
        if strange:
            raise argparse.ArgumentTypeError(f"{', '.join(strange)}: not one of {', '.join(known)}")
        return found

    return parse


def number(text: str) -> int:
    """Parse a number of one or more."""
    found = int(text)
    if found < 1:
        raise argparse.ArgumentTypeError("a number of 1 or more")
    return found


@contextmanager
def folder(chosen: Path | None) -> Iterator[Path]:
    """Yield the folder that a user chose, made if it is not there; or a temporary one."""
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen.resolve()  # processes that are started elsewhere find it too
        return
    with tempfile.TemporaryDirectory(prefix="voxload-bench-") as temporary:
        yield Path(temporary)


def finish(words: argparse.Namespace, rows: Sequence[Row], is_right: Callable[[Row], bool] = lambda _: True) -> int:
    """Print rows as the command line asks for it, and return the exit status: 1 when a row is not right.

    Parameters
    ----------
    words
        The command line.
    rows
        Dataclasses; those of one kind, one behind the other, are a table.
    is_right
        Tells whether a row keeps its limits; one that does not is marked in the table.
    """
    if words.json:
        print(json.dumps([document(row) | {"is_right": is_right(row)} for row in rows], indent=1))
    else:
        for _, alike in groupby(rows, type):
            print(table(list(alike), is_right))
    return int(not all(map(is_right, rows)))


def document(row: DataclassInstance) -> dict[str, Any]:
    """Return the fields and the properties of a row as plain values."""
    properties = [name for name, each in vars(type(row)).items() if isinstance(each, property)]
    return asdict(row) | {name: getattr(row, name) for name in properties}


def table(rows: Sequence[Row], is_right: Callable[[Row], bool] = lambda _: True) -> str:
    """Return rows as lines of text, a column for each field and property that is a text or a number."""
    documents = [document(row) for row in rows]
    kept = [name for name, value in documents[0].items() if not isinstance(value, bool | list)]
    lines = [[name.replace("_", " ") for name in kept], *([_cell(each[name]) for name in kept] for each in documents)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = ["<" if isinstance(documents[0][name], str) else ">" for name in kept]
    marks = ["", *("" if is_right(row) else "OFF" for row in rows)]
    return "\n".join(
        "  ".join(
            (*(f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths, strict=True)), mark)
        ).rstrip()
        for line, mark in zip(lines, marks, strict=True)
    )


def _cell(value: str | float | None) -> str:
    """Return a value as text: four digits of what is no whole number."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
