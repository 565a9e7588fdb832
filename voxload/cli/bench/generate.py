"""``voxload bench generate``: a data set that a storage is measured with."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from voxload.benchmark.cold.node_memory import memory_limit
from voxload.benchmark.generate.generate import generate as run_generate
from voxload.benchmark.generate.plan import TIMES_MEMORY, Contents, DatasetPlan, Kind, samples_for, voxel_dtype
from voxload.benchmark.generate.storage import CODECS, Codec, Extents, Storage, StoreFormat
from voxload.cli.options import parse_extents
from voxload.cli.terminal import Screen, byte_bar
from voxload.convert.layout import Wishes, plan_layout
from voxload.errors import UsageError
from voxload.readers.axes import AxisOrder
from voxload.units import format_bytes, parse_bytes

EPILOG = (
    "Example: voxload bench generate bench-data --format zarr3 --shape 4,512,512,512 --codec blosc-lz4 --nodes 16 "
    "--workers 8"
)
"""Shown at the end of the command's help."""

_NONE = "none"
_SHARD_BYTES = 32 * 2**20
"""Decoded bytes of a shard, about: zarr-python encodes one in memory, at several times its size."""
_DTYPES = {Kind.COUNTS: "<i2", Kind.FLOATS: "<f4", Kind.PATTERN: "<i2"}


def generate(
    folder: Annotated[Path, typer.Argument(help="Folder for samples and catalog.parquet.", show_default=False)],
    *,
    stored: Annotated[StoreFormat, typer.Option("--format", help="How samples are stored.")] = StoreFormat.ZARR3,
    shape: Annotated[str, typer.Option(help="Extents of a sample, C,D,H,W.")] = "4,128,128,128",
    dtype: Annotated[
        str, typer.Option(help="numpy type of a voxel, such as >f4; by default <f4 for floats, else <i2.")
    ] = "",
    axes: Annotated[str, typer.Option(help="Order of the axes as stored, slowest first.")] = "CDHW",
    chunks: Annotated[str, typer.Option(help="C,D,H,W, D,H,W or none; by default as voxload convert chooses.")] = "",
    shards: Annotated[str, typer.Option(help="zarr3: as --chunks; by default as voxload convert chooses.")] = "",
    codec: Annotated[str, typer.Option(help=f"How chunks are compressed: {', '.join(CODECS)}.")] = _NONE,
    level: Annotated[int | None, typer.Option(help="Level of the codec; by default its usual one.")] = None,
    num_samples: Annotated[
        int, typer.Option(help="Samples; by default as many as --times-memory asks for.", min=0, show_default=False)
    ] = 0,
    times_memory: Annotated[
        float, typer.Option(help="Data set over the memory of all nodes, so that storage is read and not memory.")
    ] = TIMES_MEMORY,
    memory: Annotated[str, typer.Option(help="Memory of a node, such as 512GiB; by default this one's.")] = "",
    nodes: Annotated[int, typer.Option(help="Nodes that will read.", min=1)] = 1,
    values: Annotated[
        Kind, typer.Option(help="counts: as a universe's; floats: that no codec makes smaller; pattern: any type.")
    ] = Kind.COUNTS,
    seed: Annotated[int, typer.Option(help="Seed of the voxels.", min=0)] = 0,
    workers: Annotated[
        int, typer.Option(help="Processes; by default one for each core.", min=0, show_default=False)
    ] = 0,
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Say what would be written, and write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Write samples whose every voxel can be verified, with a catalogue.

    Run it again after an interruption, or with more samples: what is complete is kept.
    """
    extents, kind = _extents("--shape", shape), dtype or _DTYPES[values]
    storage = _storage(stored, axes.upper(), codec=Codec(codec, level), cuts=(chunks, shards), sample=(extents, kind))
    plan = DatasetPlan(extents, kind, storage, Contents(values, seed))
    node = parse_bytes(memory) if memory else memory_limit()
    stored_bytes = plan.stored_sample_bytes()
    count = num_samples or samples_for(stored_bytes, memory_bytes=node * nodes, times_memory=times_memory)
    plan = dataclasses.replace(plan, samples=count)
    if is_dry:
        figures = _figures(plan, stored_bytes * count, memory=node * nodes)
    else:
        with byte_bar() as show:
            report = run_generate(folder, plan, workers=workers or len(os.sched_getaffinity(0)), progress=show)
        figures = _figures(plan, report.stored_bytes, memory=node * nodes) | {
            "written": report.written,
            "seconds": report.seconds,
            "catalog": str(report.catalog),
        }
    if as_json:
        print(json.dumps(figures))
    else:
        Screen().print(_table(plan, figures))


def _extents(option: str, text: str) -> Extents:
    values = parse_extents(option, text)
    if len(values) != 4 or min(values) < 1:
        raise UsageError(option, found=repr(text), expected="four extents C,D,H,W of 1 or more, such as 4,128,128,128")
    return values[0], values[1], values[2], values[3]


def _storage(
    stored: StoreFormat, axes: str, *, codec: Codec, cuts: tuple[str, str], sample: tuple[Extents, str]
) -> Storage:
    """Return how samples are stored; chunks and shards that are not said are those that voxload convert chooses."""
    shape, dtype = sample
    chunks, shards = cuts
    if not stored.is_chunked or chunks == _NONE:
        for option, text in (("--chunks", chunks), ("--shards", shards)):
            if text not in ("", _NONE):
                raise UsageError(option, found=text, expected=f"none with format {stored} in one piece")
        return Storage(stored, axes, codec=codec)
    AxisOrder(axes)  # refuses what is none
    # Three extents leave channels to voxload convert's choice.
    asked = _extents("--chunks", chunks if chunks.count(",") > 2 else f"1,{chunks}") if chunks else None
    layout = plan_layout(
        shape,
        voxel_dtype(dtype).itemsize,
        is_sharded=True,
        wishes=Wishes(chunks=asked[1:] if asked else None, file_bytes=_SHARD_BYTES),
    )
    cut = asked if asked and chunks.count(",") > 2 else layout.chunks
    shard = _shards(stored, shards, chosen=layout.shards, chunks=cut)
    return Storage(stored, axes, chunks=cut, shards=shard, codec=codec)


def _shards(stored: StoreFormat, text: str, *, chosen: Extents | None, chunks: Extents) -> Extents | None:
    if text == _NONE or (not text and stored is not StoreFormat.ZARR3):
        return None
    if text or chosen is None:
        return _extents("--shards", text)
    return -(-chosen[0] // chunks[0]) * chunks[0], *chosen[1:]  # of whole chunks in channels too


def _figures(plan: DatasetPlan, stored_bytes: int, *, memory: int) -> dict[str, Any]:
    """Return what is known of a data set as plain values."""
    return {
        "plan": plan.to_dict(),
        "samples": plan.samples,
        "bytes": plan.samples * plan.sample_bytes,
        "stored_bytes": stored_bytes,
        "memory_bytes": memory,
        "times_memory": stored_bytes / memory,
    }


def _table(plan: DatasetPlan, figures: dict[str, Any]) -> Table:
    table = Table(show_header=False)
    storage, times = plan.storage, figures["times_memory"]
    table.add_row(
        "samples", f"{plan.samples} of {plan.contents.kind}, {plan.dtype} {plan.shape}, seed {plan.contents.seed}"
    )
    cuts = (("chunks", storage.chunks), ("shards", storage.shards))
    parts = "".join(f", {name} {cut}" for name, cut in cuts if cut is not None)
    table.add_row("stored as", f"{storage.format} {storage.axes}{parts}, codec {storage.codec.name}")
    table.add_row("voxels", format_bytes(figures["bytes"]))
    table.add_row("in storage", format_bytes(figures["stored_bytes"]))
    table.add_row("times memory", f"{times:.3g} of {format_bytes(figures['memory_bytes'])}")
    if times < TIMES_MEMORY:
        table.add_row("note", f"below {TIMES_MEMORY:g} times memory, reads may come from the page cache")
    if "seconds" in figures:
        table.add_row("written", f"{figures['written']} samples in {figures['seconds']:.1f} s")
        table.add_row("catalogue", figures["catalog"])
    return table
