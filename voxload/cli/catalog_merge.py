"""``voxload catalog merge``: several catalogues as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from voxload.catalogs import Rows, catalog_path, merge, write_rows
from voxload.catalogs.write import check_output
from voxload.cli.catalog_tables import totals

EPILOG = "Example: voxload catalog merge all.parquet campaign1/ campaign2/"
"""Shown at the end of the command's help."""


def merge_catalogs(
    out: Annotated[Path, typer.Argument(help="The catalogue to write, or a folder for it.", show_default=False)],
    catalogs: Annotated[list[Path], typer.Argument(help="Catalogues, or their folders.", show_default=False)],
    *,
    common_targets: Annotated[
        bool, typer.Option("--common-targets", help="Keep only the targets that all have, where they differ.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write the rows of several catalogues into one; paths are rewritten, nothing else is copied."""
    place = catalog_path(out)
    check_output(place, overwrite=overwrite)
    rows = merge([Rows.read(path) for path in catalogs], place.parent, common_targets=common_targets)
    write_rows({place: rows}, overwrite=overwrite)
    print_written(place, rows, as_json=as_json)


def print_written(place: Path, rows: Rows, *, as_json: bool) -> None:
    """Say what was written where."""
    if as_json:
        counts = {"samples": len(set(rows.samples)), "volumes": len(rows), "stored_bytes": rows.stored_bytes}
        print(json.dumps({"catalog": str(place), **counts, "targets": rows.targets}))
    else:
        print(f"{place}: {totals(rows)}")
