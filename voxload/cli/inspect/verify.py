"""``voxload verify``: stored samples read again and compared with their checksums."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from voxload.cli.options import AllowOutside
from voxload.cli.terminal import Screen, byte_bar
from voxload.readers import Missing
from voxload.units import format_bytes
from voxload.verification import Check, VerifyReport
from voxload.verification import verify as run_verify

EPILOG = "Example: voxload verify universes/"
"""Shown at the end of the command's help."""

_MEANING = {
    Check.CHECKSUM: "every chunk compared with its checksum",
    Check.DECODED: "no checksums: every chunk decoded, which misses some flipped bits",
    Check.READ: "contiguous: all voxels read, nothing to compare with",
}


def verify(
    catalog: Annotated[Path, typer.Argument(help="A catalogue, or the folder that holds it.", show_default=False)],
    *,
    write: Annotated[
        bool, typer.Option("--write", help="Record checksums of sound volumes that have none; keep those there are.")
    ] = False,
    missing: Annotated[
        Missing, typer.Option(help="Chunks never written, where no checksums know them: a fault, or as they should be.")
    ] = Missing.ERROR,
    allow_outside: AllowOutside = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Read every stored chunk of every sample and list what is damaged.

    Ends with status 1 if anything is. Where the catalogue has no checksums, chunks are decoded instead.
    """
    with byte_bar() as show:
        report = run_verify(catalog, write=write, missing=missing, progress=show, allow_outside=allow_outside)
    if as_json:
        print(json.dumps({**dataclasses.asdict(report), "catalog": str(report.catalog)}))
    else:
        _show(report)
    if report.damaged:
        raise typer.Exit(1)


def _show(report: VerifyReport) -> None:
    table = Table(show_header=False)
    for check, count in report.volumes.items():
        if count:
            table.add_row(check.value, f"{count} volumes ({_MEANING[check]})")
    table.add_row("chunks", str(report.chunks))
    rate = report.bytes_read / report.seconds if report.seconds else 0.0
    table.add_row("read", f"{format_bytes(report.bytes_read)} in {report.seconds:.1f} s, {format_bytes(int(rate))}/s")
    if report.recorded:
        table.add_row("checksums recorded", f"{report.recorded} volumes")
    table.add_row("damaged", str(report.damaged) if report.damaged else "nothing")
    console = Screen()
    console.print(table)
    if report.faults:
        console.print(_faults(report))


def _faults(report: VerifyReport) -> Table:
    table = Table(title="What is wrong", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("file", "chunk", "error"):
        table.add_column(name, overflow="fold", no_wrap=name == "chunk")
    for fault in report.faults:
        file = f"{fault.file}:{fault.dataset}" if fault.dataset else fault.file
        table.add_row(file, ",".join(map(str, fault.chunk)) if fault.chunk else "-", fault.error)
    more = report.damaged - len(report.faults)
    table.caption = (
        f"and {more} more\n" if more > 0 else ""
    ) + "copy these files again, or convert their samples again"
    table.caption_justify = "left"
    return table
