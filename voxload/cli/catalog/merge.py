"""``voxload catalog merge``: several catalogues as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voxload.catalog import Rows, catalog_path, write_rows
from voxload.catalog.merge import merge
from voxload.catalog.rows import check_output
from voxload.cli.catalog.tables import print_written
from voxload.cli.options import AllowOutside

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
