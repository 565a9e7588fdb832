"""``voxload convert``: raw cubes into chunked samples and their catalogue."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from voxload.cli.options import parse_extents, parse_triple
from voxload.cli.progress import byte_bar
from voxload.convert import ConvertOptions, ConvertReport, Headerless, MemoryOrder, StoredFormat
from voxload.convert import convert as run_convert
from voxload.errors import UsageError
from voxload.units import format_bytes, parse_bytes

EPILOG = "Example: voxload convert raw/ universes/ --max-memory 512MiB"
"""Shown at the end of the command's help."""


def convert(
    src: Annotated[Path, typer.Argument(help="A raw cube, or a folder that is searched for them.", show_default=False)],
    dst: Annotated[Path, typer.Argument(help="Folder for the samples and catalog.parquet.", show_default=False)],
    *,
    stored: Annotated[StoredFormat, typer.Option("--format", help="How samples are stored.")] = StoredFormat.ZARR,
    shape: Annotated[str, typer.Option(help="Headerless binary: extents, such as 512,512,512.")] = "",
    dtype: Annotated[str, typer.Option(help="Headerless binary: numpy type, such as <f4.")] = "",
    order: Annotated[
        MemoryOrder | None,
        typer.Option(
            help="Headerless binary: whether the last index runs fastest (C) or the first (F); C unless told otherwise."
        ),
    ] = None,
    axes: Annotated[str, typer.Option(help="Order of the source's axes, such as DHWC.")] = "",
    chunks: Annotated[str, typer.Option(help="Chunk extents d,h,w; chosen by the cube's extents if not given.")] = "",
    max_memory: Annotated[str, typer.Option(help="Most memory that the whole conversion may take.")] = "512MiB",
    checksums: Annotated[
        bool, typer.Option("--checksums", help="Record a CRC-32C per stored chunk, which every read then verifies.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Convert raw cubes into Zarr or HDF5 samples and a catalogue.

    Run it again after an interruption: what is complete is skipped, what is not is taken up.
    """
    options = ConvertOptions(
        format=stored,
        headerless=_headerless(shape, dtype, order),
        axes=axes or None,
        chunks=parse_triple("--chunks", chunks) if chunks else None,
        max_memory=parse_bytes(max_memory),
        checksums=checksums,
    )
    with byte_bar() as show:
        report = run_convert(src, dst, options=options, progress=show)
    if as_json:
        print(json.dumps({**dataclasses.asdict(report), "catalog": str(report.catalog)}))
    else:
        Console().print(_table(report))


def _headerless(shape: str, dtype: str, order: MemoryOrder | None) -> Headerless | None:
    if not shape and not dtype and order is None:
        return None
    if not shape or not dtype:
        raise UsageError(
            "headerless binary",
            found=f"no {'--dtype' if shape else '--shape'}",
            expected="--shape and --dtype, and --order for Fortran order",
            remedy="write for example --shape 512,512,512 --dtype '<f4' --order F",
        )
    return Headerless(parse_extents("--shape", shape), dtype, order or MemoryOrder.C)


def _table(report: ConvertReport) -> Table:
    table = Table(show_header=False)
    table.add_row("converted", f"{len(report.converted)} samples")
    table.add_row("skipped, complete before", f"{len(report.skipped)} samples")
    if report.ignored:
        table.add_row("ignored, no raw cubes", f"{len(report.ignored)} files, such as {report.ignored[0]}")
    if report.bytes_resumed:
        table.add_row("resumed", format_bytes(report.bytes_resumed))
    table.add_row("read", format_bytes(report.bytes_read))
    table.add_row("written", format_bytes(report.bytes_written))
    if report.summed:
        table.add_row("with checksums", f"{report.summed} volumes")
    table.add_row("time", f"{report.seconds:.1f} s")
    table.add_row("catalogue", str(report.catalog))
    return table
