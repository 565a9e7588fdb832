"""Tables of a conversion: what is planned, and what was done."""

from __future__ import annotations

from math import prod
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from voxload.convert import ConvertReport, PlannedConversion
from voxload.units import format_bytes

_LISTED = 20
"""Volumes that a plan shows; the rest are counted."""


def report_table(report: ConvertReport) -> Table:
    """Return what a conversion did."""
    table = Table(show_header=False)
    table.add_row("converted", f"{len(report.converted)} samples")
    table.add_row("skipped, complete before", f"{len(report.skipped)} samples")
    if report.ignored:
        table.add_row("ignored, no raw cubes", f"{len(report.ignored)} files, such as {report.ignored[0]}")
    if report.bytes_resumed:
        table.add_row("resumed", format_bytes(report.bytes_resumed))
    table.add_row("read", format_bytes(report.bytes_read))
    table.add_row("written", f"{format_bytes(report.bytes_written)} in {report.chunks} chunks")
    if report.summed:
        table.add_row("with checksums", f"{report.summed} volumes")
    if report.verified:
        table.add_row("compared with the sources", f"{report.verified} voxels, all equal")
    table.add_row("time", f"{report.seconds:.1f} s")
    table.add_row("catalogue", str(report.catalog) if report.is_catalogued else "the last task writes it")
    return table


def plan_figures(plan: PlannedConversion) -> dict[str, Any]:
    """Return a planned conversion as plain values."""
    return {
        "samples": plan.samples,
        "volumes": [
            {
                "path": str(volume.path),
                "samples": volume.samples,
                "shape": list(volume.shape),
                "dtype": volume.dtype,
                "chunks": list(volume.chunks),
                "shards": list(volume.shards) if volume.shards else None,
                "compression": volume.compression,
                "decoded_bytes": volume.decoded_bytes,
                "stored_bytes_estimated": volume.stored_bytes,
                "complete": volume.is_complete,
            }
            for volume in plan.volumes
        ],
        "ignored": list(plan.ignored),
        "memory_projected": plan.memory,
        "seconds_estimated": plan.seconds,
    }


def plan_table(plan: PlannedConversion) -> RenderableType:
    """Return a planned conversion: sums, and the first volumes."""
    sums = Table(show_header=False)
    pending = [volume for volume in plan.volumes if not volume.is_complete]
    sums.add_row("samples", f"{plan.samples} in {len(plan.volumes)} volumes")
    sums.add_row("complete already", f"{len(plan.volumes) - len(pending)} volumes")
    if plan.ignored:
        sums.add_row("ignored, no raw cubes", f"{len(plan.ignored)} files, such as {plan.ignored[0]}")
    sums.add_row("to read", format_bytes(sum(volume.decoded_bytes for volume in pending)))
    sums.add_row("to write, estimated", format_bytes(sum(volume.stored_bytes for volume in pending)))
    sums.add_row("files", str(sum(volume.files for volume in pending)))
    sums.add_row("memory, projected", format_bytes(plan.memory))
    sums.add_row("time, estimated without the disk", f"{plan.seconds:.0f} s")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title="Volumes", title_justify="left")
    for name in ("volume", "samples", "shape", "dtype", "chunks", "files of", "codec", "stored"):
        table.add_column(name, justify="left" if name in ("volume", "codec", "dtype") else "right", overflow="fold")
    for volume in plan.volumes[:_LISTED]:
        share = volume.stored_bytes // volume.files
        table.add_row(
            volume.path.name + (" (complete)" if volume.is_complete else ""),
            str(volume.samples),
            _extents(volume.shape),
            volume.dtype,
            _extents(volume.chunks),
            f"{format_bytes(share)}",
            volume.compression,
            format_bytes(volume.stored_bytes),
        )
    more = len(plan.volumes) - _LISTED
    if more > 0:
        table.caption = f"and {more} more"
    return Group(sums, table)


def _extents(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if prod(shape) else ""
