"""``voxload catalog list``: the samples of a catalogue, and what their voxels are like."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from voxload.catalog import FieldFigures, Rows, field_figures, filter_rows, parse, read_failures
from voxload.catalog.query.parser import parse_column
from voxload.catalog.query.terms import Column
from voxload.cli.catalog.tables import failures_table, figures_table, plain, sample_table, totals
from voxload.cli.options import parse_names
from voxload.cli.terminal import Screen

EPILOG = 'Example: voxload catalog list universes/ --where "Omega_m > 0.3" --statistics'
"""Shown at the end of the command's help."""

_SHOWN = 40
"""Rows in a table, unless told otherwise."""


def list_catalog(
    catalog: Annotated[str, typer.Argument(help="A catalogue, its folder, or the URL of either.", show_default=False)],
    *,
    where: Annotated[str, typer.Option(help="Only rows for which this holds, such as 'sample != \"a\"'.")] = "",
    columns: Annotated[str, typer.Option(help="Columns to show, such as sample,path,statistics.mean.")] = "",
    limit: Annotated[
        int | None, typer.Option(help="Rows to show at most: by default 40 in the table, all in JSON.", min=0)
    ] = None,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Add the figures of each field, merged over all rows.")
    ] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="Add the samples that could not be made, as append noted them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print rows and figures as JSON.")] = False,
) -> None:
    """List samples with totals; these and the figures are of all rows for which --where holds, shown or not."""
    rows = Rows.read(catalog, allow_outside=True)  # opens nothing that it names
    if where:
        rows = filter_rows(rows, where=parse(where))
    shown = _shown(rows, parse_names(columns), is_short=not as_json)
    figures = field_figures(rows) if statistics else None
    failures = read_failures(catalog) if failed else None
    if as_json:
        _print_json(rows, shown, limit, figures, failures)
        return
    console = Screen()
    console.print(sample_table(rows, shown, _SHOWN if limit is None else limit))
    console.print(totals(rows))
    if figures is not None:
        console.print(figures_table(figures))
    if failures is not None:
        console.print(failures_table(failures))


def _shown(rows: Rows, names: tuple[str, ...], *, is_short: bool) -> dict[str, Column]:
    """Return the columns to show, by how they are written."""
    if not names and is_short:
        more = ["universe"] * any(rows.strings("universe"))
        spacing = ["spacing"] * (rows.table.column("spacing").null_count < len(rows))
        names = ("sample", "dataset", "shape", *spacing, "dtype", "stored_bytes", *rows.targets, *more)
    elif not names:
        names = tuple(name for name in rows.table.column_names if name != "statistics")
    return {name: parse_column(name) for name in names}


def _print_json(
    rows: Rows,
    shown: dict[str, Column],
    limit: int | None,
    figures: dict[str, FieldFigures] | None,
    failures: dict[str, str] | None,
) -> None:
    values = [[plain(value) for value in column.of(rows.table)[:limit].to_pylist()] for column in shown.values()]
    found: dict[str, Any] = {
        "catalog": rows.name,
        "samples": len(set(rows.samples)),
        "volumes": len(rows),
        "stored_bytes": rows.stored_bytes,
        "rows": [dict(zip(shown, line, strict=True)) for line in zip(*values, strict=True)],
    }
    if figures is not None:
        found["statistics"] = {name: plain(asdict(field)) for name, field in figures.items()}
    if failures is not None:
        found["failed"] = failures
    print(json.dumps(found, allow_nan=False, default=str))
