"""``voxload info``: what a file holds, raw or stored, and what reading it costs each rank of a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voxload.cli.info_answer import Answer
from voxload.cli.info_catalog import CatalogRow, is_catalog, read_catalog
from voxload.cli.info_source import Choice
from voxload.cli.info_stored import Ranks
from voxload.cli.info_subject import Given, find_subject
from voxload.cli.options import AllowOutside, headerless
from voxload.cli.outputs import check_file
from voxload.convert.sources.hints import MemoryOrder
from voxload.geometry import Boundary, Halo

EPILOG = "Example: voxload info universe.zarr --spatial 2,2,2 --halo 1 --plot slices.png"
"""Shown at the end of the command's help."""


def info(
    path: Annotated[
        str, typer.Argument(help="A raw file or a folder of them, a volume, its URL, a catalogue.", show_default=False)
    ],
    *,
    dataset: Annotated[str, typer.Option(help="Name of the volume inside the file.")] = "",
    sample: Annotated[str, typer.Option(help="Id of the sample, of a catalogue or of raw files with several.")] = "",
    part: Annotated[str, typer.Option(help="Which of several samples in a raw file, such as 0007.")] = "",
    kind: Annotated[str, typer.Option("--from", help="Format of a raw file; found out if not given.")] = "",
    axes: Annotated[str, typer.Option(help="Order of the axes as stored, such as DHWC.")] = "",
    shape: Annotated[str, typer.Option(help="Headerless binary: extents as stored, such as 512,512,512.")] = "",
    dtype: Annotated[str, typer.Option(help="Headerless binary: numpy type, such as <f4.")] = "",
    order: Annotated[
        MemoryOrder | None,
        typer.Option(help="Headerless binary: whether the last index runs fastest (C, the default) or the first (F)."),
    ] = None,
    header_bytes: Annotated[int, typer.Option(help="Headerless binary: bytes before the first voxel.", min=0)] = 0,
    spatial: Annotated[str, typer.Option(help="Grid d,h,w: show what each of its ranks reads.")] = "",
    halo: Annotated[int, typer.Option(help="Voxels wanted around each block.", min=0)] = 0,
    boundary: Annotated[Boundary, typer.Option(help="What lies outside the sample.")] = Boundary.ZERO,
    plot: Annotated[Path | None, typer.Option(help="Draw the three central planes into this PNG file.")] = None,
    allow_outside: AllowOutside = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Say what a file is, how it is stored, and what reading it costs.

    Of a raw file, the cubes that a conversion would find in it; no voxel is read but those of a picture.
    """
    check_file("--plot", plot)
    answer = Answer(Ranks(spatial, Halo.parse(halo), boundary), plot)
    if not is_catalog(path):
        binary = headerless(shape, dtype, order=order, header_bytes=header_bytes)
        choice = Choice(sample, dataset, part)
        answer.add_subject(
            find_subject(Given(path, choice, axes=axes, headerless=binary, kind=kind, allow_outside=allow_outside))
        )
    elif sample or plot is not None or spatial:
        answer.add_row(CatalogRow.find(read_catalog(path, allow_outside=allow_outside), sample, dataset))
    else:
        answer.add_catalog(read_catalog(path, allow_outside=True))  # opens nothing that it names
    answer.show(as_json=as_json)
