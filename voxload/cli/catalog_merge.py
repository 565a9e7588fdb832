"""``voxload catalog merge``: several catalogues as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from voxload.catalogs import Rows, catalog_path, merge, write_rows
from voxload.catalogs.relocate import names_outside
from voxload.catalogs.write import check_output
from voxload.cli.catalog_tables import totals
from voxload.cli.options import AllowOutside
from voxload.text import shown

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
    allow_outside: AllowOutside = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write the rows of several catalogues into one; paths are rewritten, nothing else is copied."""
    place = catalog_path(out)
    check_output(place, overwrite=overwrite)
    rows = merge(
        [Rows.read(path, allow_outside=allow_outside) for path in catalogs], place.parent, common_targets=common_targets
    )
    write_rows({place: rows}, overwrite=overwrite)
    print_written(place, rows, as_json=as_json)


def print_written(place: Path, rows: Rows, *, as_json: bool) -> None:
    """Say what was written where."""
    if as_json:
        counts = {"samples": len(set(rows.samples)), "volumes": len(rows), "stored_bytes": rows.stored_bytes}
        print(json.dumps({"catalog": str(place), **counts, "targets": rows.targets}))
    else:
        print(f"{shown(str(place))}: {totals(rows)}")
        tell_outside([place])


def tell_outside(places: list[Path]) -> None:
    """Say of catalogues that name files outside of their folder how they are read."""
    outside = [place for place in places if names_outside(Rows.read(place, allow_outside=True))]
    if outside:
        print("files lie outside of its folder: read it with --allow-outside")
