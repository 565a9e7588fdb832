"""``voxload catalog shards``: a catalogue of what lies in tar archives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voxload.catalog import Rows, catalog_path, write_rows
from voxload.catalog.rows import check_output
from voxload.catalog.shards import list_shards
from voxload.cli.catalog.tables import print_written
from voxload.cli.options import parse_names
from voxload.cli.terminal import count_bar

EPILOG = "Example: voxload catalog shards birds/catalog.parquet birds/*.tar --members jpg"
"""Shown at the end of the command's help."""


def catalog_shards(
    out: Annotated[Path, typer.Argument(help="The catalogue to write, or a folder for it.", show_default=False)],
    shards: Annotated[list[Path], typer.Argument(help="Archives in WebDataset's layout.", show_default=False)],
    *,
    members: Annotated[
        str, typer.Option(help="Extensions of the volumes, such as jpg,seg.png.", show_default="all volumes")
    ] = "",
    targets: Annotated[
        str,
        typer.Option(help="Members of one number, or keys of json, with commas.", show_default="cls, where it is"),
    ] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a catalogue of pictures, clips and arrays in tar archives; nothing is unpacked.

    Each row has its sample's place in the archive, so that loaders read that range alone. Archives that are written
    anew have to be listed again.
    """
    place = catalog_path(out)
    check_output(place, overwrite=overwrite)
    with count_bar("listing", total=len(shards), unit="shard") as bar:
        found = list_shards(
            shards,
            place.parent,
            members=parse_names(members),
            targets=parse_names(targets) or None,
            tell=lambda _: bar.update(),
        )
    rows = Rows.of(found.whole, place.parent, name=str(place))
    write_rows({place: rows}, overwrite=overwrite)
    print_written(place, rows, as_json=as_json)
