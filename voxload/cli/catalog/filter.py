"""``voxload catalog filter``: some rows of a catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voxload.catalog import Rows, catalog_path, filter_rows, parse, write_rows
from voxload.catalog.rows import check_output
from voxload.cli.catalog.tables import print_written
from voxload.cli.options import AllowOutside
from voxload.errors import NotFoundError, UsageError
from voxload.files.regular import read_text

EPILOG = "Example: voxload catalog filter universes/ sound.parquet --where 'statistics.nan_count == 0'"
"""Shown at the end of the command's help."""


def filter_catalog(
    catalog: Annotated[str, typer.Argument(help="A catalogue, its folder, or the URL of either.", show_default=False)],
    out: Annotated[Path, typer.Argument(help="The catalogue to write, or a folder for it.", show_default=False)],
    *,
    where: Annotated[
        str, typer.Option(help="Rows for which this holds: == != < <= > >= in, and, or, not, (...); == null.")
    ] = "",
    samples: Annotated[Path | None, typer.Option(help="Rows of the samples in this file, one id a line.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it is there.")] = False,
    allow_outside: AllowOutside = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write the rows for which a condition on their columns holds, or of samples on a list; with both, of both."""
    if not where and samples is None:
        raise UsageError("voxload catalog filter", found="no condition", remedy="give --where or --samples")
    condition = parse(where) if where else None
    place = catalog_path(out)
    check_output(place, overwrite=overwrite)
    listed = _ids(samples) if samples is not None else None
    found = filter_rows(Rows.read(catalog, allow_outside=allow_outside), where=condition, samples=listed)
    if not len(found):
        raise UsageError("voxload catalog filter", found="no row for which this holds", remedy="nothing was written")
    write_rows({place: found}, overwrite=overwrite)
    print_written(place, found, as_json=as_json)


def _ids(path: Path) -> list[str]:
    """Return the lines of a file that are not empty."""
    try:
        return [line for line in read_text(path).splitlines() if line.strip()]
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise NotFoundError(
            f"list {path}", found="no such file", remedy="name a text file with one id a line"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"list {path}", found="bytes that are no text", expected="one id a line in UTF-8") from error
