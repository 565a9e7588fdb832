"""``voxload convert``: raw cubes into chunked samples and their catalogue."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from voxload.cli.headerless import headerless
from voxload.cli.options import AllowOutside, check_folder, parse_extents, parse_names, parse_triple
from voxload.cli.terminal import Screen, byte_bar
from voxload.convert import (
    Assignment,
    Compression,
    ConvertOptions,
    ConvertReport,
    Gridding,
    GridPoints,
    GridUnit,
    Hints,
    MemoryOrder,
    Packing,
    ParticleChoice,
    PlannedConversion,
    Readers,
    Share,
    StoredFormat,
    convert_and_append,
    plan_conversion,
)
from voxload.convert import convert as run_convert
from voxload.convert.plan.finding import ignored_rows
from voxload.errors import UsageError
from voxload.files.names import safe_dataset
from voxload.geometry import Boundary, Halo
from voxload.readers import Missing
from voxload.units import format_bytes, parse_bytes

EPILOG = "Example: voxload convert raw/ universes/ --spatial 2,2,2 --halo 1 --max-memory 1GiB"
"""Shown at the end of the command's help."""


def convert(
    src: Annotated[Path, typer.Argument(help="A raw cube, or a folder that is searched for them.", show_default=False)],
    dst: Annotated[Path, typer.Argument(help="Folder for the samples and catalog.parquet.", show_default=False)],
    *,
    stored: Annotated[StoredFormat, typer.Option("--format", help="How samples are stored.")] = StoredFormat.ZARR,
    kind: Annotated[str, typer.Option("--from", help="Format of the sources; found out if not given.")] = "",
    datasets: Annotated[str, typer.Option("--dataset", help="Volumes wanted, of files with several: a,b.")] = "",
    shape: Annotated[str, typer.Option(help="Headerless binary: extents, such as 512,512,512.")] = "",
    dtype: Annotated[str, typer.Option(help="Headerless binary: numpy type, such as <f4.")] = "",
    order: Annotated[
        MemoryOrder | None,
        typer.Option(
            help="Headerless binary: whether the last index runs fastest (C) or the first (F); C unless told otherwise."
        ),
    ] = None,
    header_bytes: Annotated[int, typer.Option(help="Headerless binary: bytes before the first voxel.", min=0)] = 0,
    axes: Annotated[str, typer.Option(help="Order of the source's axes, such as DHWC.")] = "",
    missing: Annotated[
        Missing, typer.Option(help="HDF5 and Zarr: voxels never written are an error, or get the fill value.")
    ] = Missing.ERROR,
    grid: Annotated[str, typer.Option(help="Particles: cells along each axis, or d,h,w.")] = "",
    assign: Annotated[Assignment, typer.Option(help="Particles: how mass is spread over cells.")] = Assignment.CIC,
    unit: Annotated[GridUnit, typer.Option(help="Particles: what a voxel holds.")] = GridUnit.MASS,
    grid_points: Annotated[GridPoints, typer.Option(help="Particles: where grid points lie.")] = GridPoints.CENTRES,
    particle_types: Annotated[
        str, typer.Option(help="Particles: types wanted, such as 1,4; the only one there is.")
    ] = "",
    box_size: Annotated[
        float | None, typer.Option(help="Particles: edge of the box, if the file does not say.")
    ] = None,
    stack: Annotated[
        list[str] | None,
        typer.Option(help="Variables that become channels of one volume, in this order: NAME=a,b,c; repeatable."),
    ] = None,
    targets: Annotated[
        Path | None, typer.Option(help="Table of targets beside the sources: CSV, text, YAML, JSON or Parquet.")
    ] = None,
    spatial: Annotated[str, typer.Option(help="Grid d,h,w of the ranks that will read; 2,2,2 if not given.")] = "",
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="That grid as voxload plan says.", show_default=False)
    ] = None,
    halo: Annotated[int, typer.Option(help="Voxels that each rank will read around its block.", min=0)] = 0,
    boundary: Annotated[Boundary, typer.Option(help="What lies outside a sample.")] = Boundary.ZERO,
    chunks: Annotated[str, typer.Option(help="Chunk extents d,h,w, instead of those that suit the grid.")] = "",
    split: Annotated[str, typer.Option(help="Cut each cube into samples of d,h,w voxels, or of one extent.")] = "",
    pack: Annotated[Packing, typer.Option(help="Whether small samples share files.")] = Packing.AUTO,
    compression: Annotated[Compression, typer.Option(help="How chunks are compressed.")] = Compression.AUTO,
    max_memory: Annotated[str, typer.Option(help="Most memory that the whole conversion may take.")] = "1GiB",
    workers: Annotated[int | None, typer.Option(help="Threads that encode; one a core if not given.", min=1)] = None,
    task: Annotated[
        int | None, typer.Option(help="Number of this task, from 0; Slurm's array task if there is one.")
    ] = None,
    tasks: Annotated[int | None, typer.Option(help="Tasks that share the conversion.", min=1)] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(help="Dask scheduler, by address or scheduler file, whose workers convert.", show_default=False),
    ] = None,
    checksums: Annotated[
        bool, typer.Option("--checksums", help="Record a CRC-32C per stored chunk, which every read then verifies.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every stored voxel again and compare it with its source.")
    ] = False,
    into: Annotated[
        bool, typer.Option("--append", help="Add to DST's catalogue, which others read and add to meanwhile.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    allow_outside: AllowOutside = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Convert raw cubes into Zarr or HDF5 samples and a catalogue.

    Run it again after an interruption: what is complete is skipped, what is not is taken up.

    With --append each source has a folder of its own below DST, and its samples appear in DST's catalogue when all of
    them are complete.
    """
    check_folder("folder for the samples", dst)
    binary = headerless(shape, dtype, order=order, header_bytes=header_bytes)
    options = ConvertOptions(
        format=stored,
        hints=Hints(axes or None, binary, parse_names(datasets), kind, allow_outside),
        missing=missing,
        gridding=_gridding(grid, assign, unit, grid_points, ParticleChoice(_types(particle_types), box_size)),
        stack=_stacks(stack or []),
        targets=targets,
        chunks=parse_triple("--chunks", chunks) if chunks else None,
        readers=_readers(_planned(plan_file, spatial), halo, boundary),
        split=_split(split),
        pack=pack,
        compression=compression,
        max_memory=parse_bytes(max_memory),
        workers=workers,
        # Tasks of an array that append have sources of their own.
        share=None if into and task is None and tasks is None else _share(task, tasks),
        scheduler=scheduler,
        checksums=checksums,
        verify=verify,
    )
    if dry_run:
        plan = plan_conversion(src, dst, options)
        _print(plan_figures(plan), as_json=as_json, table=plan_table(plan))
        return
    with byte_bar() as show:
        report = (convert_and_append if into else run_convert)(src, dst, options=options, progress=show)
    figures = {**dataclasses.asdict(report), "catalog": str(report.catalog)}
    _print(figures, as_json=as_json, table=report_table(report))


def _print(figures: dict[str, Any], *, as_json: bool, table: Any) -> None:
    if as_json:
        print(json.dumps(figures))
    else:
        Screen().print(table)


def _gridding(
    grid: str, assign: Assignment, unit: GridUnit, points: GridPoints, choice: ParticleChoice
) -> Gridding | None:
    if not grid:
        return None
    return Gridding(
        parse_triple("--grid", grid) if "," in grid else _number("--grid", grid), assign, unit, points, choice
    )


def _number(option: str, text: str) -> int:
    return parse_extents(option, text)[0]


def _types(text: str) -> tuple[int, ...]:
    return parse_extents("--particle-types", text) if text else ()


def _planned(path: Path | None, spatial: str) -> str:
    """Return the grid of a plan, where there is one; plans know of networks, whose libraries take seconds to load."""
    if path is None:
        return spatial
    if spatial:
        raise UsageError("--spatial", found=f"{spatial} beside --plan", expected="one of the two")
    return ",".join(map(str, import_module("voxload.plan").load(path).spatial))


def _readers(spatial: str, halo: int, boundary: Boundary) -> Readers | None:
    """Return who will read; None for the default, which no halo and no grid asks for."""
    if not spatial and not halo:
        return None
    return Readers(parse_triple("--spatial", spatial or "2,2,2"), Halo.parse(halo), boundary)


def _stacks(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return volumes and their variables; without a name before ``=`` a volume is called by all of them."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, names = text.partition("=")
        variables = parse_names(names if equals else text)
        name = name.strip() if equals else safe_dataset("_".join(variables))
        if name in found:
            raise UsageError(
                "--stack", found=f"two volumes {name!r}", expected="a name for each", remedy="write NAME=vx,vy,vz"
            )
        found[name] = variables
    return found


def _split(text: str) -> tuple[int, int, int] | None:
    if not text:
        return None
    return parse_triple("--split", text if "," in text else ",".join([text] * 3))


def _share(task: int | None, tasks: int | None) -> Share | None:
    """Return this task's share: as the caller says, or as Slurm's environment does."""
    if task is None and tasks is None:
        return Share.from_environment(os.environ)
    if task is None or tasks is None:
        raise UsageError("--task and --tasks", found="one of them", expected="both, or neither in a Slurm array task")
    return Share(task, tasks)


_LISTED = 20
"""Volumes that a plan shows; the rest are counted."""


def report_table(report: ConvertReport) -> Table:
    """Return what a conversion did."""
    table = Table(show_header=False)
    table.add_row("converted", f"{len(report.converted)} samples")
    table.add_row("skipped, complete before", f"{len(report.skipped)} samples")
    for what, said in ignored_rows(report.ignored).items():
        table.add_row(f"ignored, {what}", said)
    if report.bytes_resumed:
        table.add_row("resumed", format_bytes(report.bytes_resumed))
    table.add_row("read", format_bytes(report.bytes_read))
    table.add_row("written", f"{format_bytes(report.bytes_written)} in {report.chunks} chunks")
    if report.summed:
        table.add_row("with checksums", f"{report.summed} volumes")
    if report.verified:
        table.add_row("compared with the sources", f"{report.verified} voxels, all equal")
    table.add_row("time", f"{report.seconds:.1f} s")
    if report.generation:
        table.add_row("generation", str(report.generation))
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
                "variables": list(volume.variables),
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
    for what, said in ignored_rows(plan.ignored).items():
        sums.add_row(f"ignored, {what}", said)
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
