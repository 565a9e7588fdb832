"""``voxload info``: what a file holds, and what reading it costs each rank of a grid."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from voxload.advice import Advice, advise
from voxload.catalog import CATALOG_NAME, Catalog
from voxload.cli.options import parse_extents, parse_triple
from voxload.convert.sources.cosmouniverse import DATASET as RAW_DATASET
from voxload.convert.sources.cosmouniverse import CosmoUniverseSource
from voxload.errors import DataError, UsageError
from voxload.geometry import Boundary, Box, Halo
from voxload.grid import ProcessGrid
from voxload.plots import draw_slices
from voxload.readers import Location, Missing, ReadCost, Reader, block_cost, find_format, open_reader, read_plane
from voxload.units import format_bytes

EPILOG = "Example: voxload info universe.zarr --spatial 2,2,2 --halo 1 --plot slices.png"
"""Shown at the end of the command's help."""


@dataclass(frozen=True, slots=True)
class RankCost:
    """What one rank of a grid reads of a volume."""

    rank: int
    """The rank."""
    box: Box
    """Its block with halo."""
    needed: int
    """Bytes of that block."""
    cost: ReadCost
    """What it asks of the storage."""

    @property
    def read_amplification(self) -> float:
        """Bytes read over bytes needed."""
        return self.cost.stored_bytes / self.needed

    @property
    def decode_amplification(self) -> float:
        """Bytes decoded over bytes needed."""
        return self.cost.decoded_bytes / self.needed


def info(
    path: Annotated[str, typer.Argument(help="A file, a Zarr folder or URL, or a catalogue.", show_default=False)],
    *,
    dataset: Annotated[str, typer.Option(help="Name of the volume inside the file.")] = "",
    axes: Annotated[str, typer.Option(help="Order of the axes as stored, such as DHWC.")] = "",
    shape: Annotated[str, typer.Option(help="Headerless binary: extents as stored, slowest first.")] = "",
    dtype: Annotated[str, typer.Option(help="Headerless binary: numpy type, such as <f4.")] = "",
    spatial: Annotated[str, typer.Option(help="Grid d,h,w: show what each of its ranks reads.")] = "",
    halo: Annotated[int, typer.Option(help="Voxels wanted around each block.", min=0)] = 0,
    boundary: Annotated[Boundary, typer.Option(help="What lies outside the sample.")] = Boundary.ZERO,
    plot: Annotated[Path | None, typer.Option(help="Draw the three central planes into this PNG file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Say what a file is, how it is stored, and what reading it costs."""
    if plot is None and not spatial and _is_catalog(path):
        _show_catalog(_catalog(path), as_json=as_json)
        return
    location = Location(
        path,
        _dataset(path, dataset),
        axes=axes or _known_axes(path, dataset),
        shape=parse_extents("--shape", shape) if shape else None,
        dtype=dtype or None,
    )
    reader = open_reader(location, missing=Missing.FILL)
    try:
        costs = _rank_costs(reader, spatial, Halo.parse(halo), boundary) if spatial else []
        advice = _advice(reader, spatial, Halo.parse(halo), boundary) if spatial else None
        figures = _figures(reader)
        if as_json:
            advised = asdict(advice) if advice else None
            print(json.dumps(figures | {"ranks": [_rank_figures(cost) for cost in costs], "advice": advised}))
        else:
            _show(figures, costs)
            if advice:
                _show_advice(advice, costs)
        if plot is not None:
            _plot(reader, plot)
    finally:
        reader.close()


def _is_catalog(path: str) -> bool:
    return Path(path).suffix == ".parquet" or (Path(path) / CATALOG_NAME).is_file()


def _catalog(path: str) -> Catalog:
    return Catalog.read(path if Path(path).suffix == ".parquet" else Path(path) / CATALOG_NAME)


def _dataset(path: str, dataset: str) -> str:
    """Return the named dataset, or the only one; raises UsageError that lists them where there are several."""
    names = find_format(path).datasets(path)
    if not dataset and len(names) > 1:
        raise UsageError(path, found=f"{len(names)} volumes, {list(names)}", remedy="name one with --dataset")
    return dataset


def _known_axes(path: str, dataset: str) -> str | None:
    """Return the axes of a raw universe, whose layout says them; None for anything else."""
    if dataset not in ("", RAW_DATASET) or find_format(path).name != "HDF5":
        return None
    try:
        return CosmoUniverseSource(Path(path)).describe().order.axes
    except (DataError, UsageError):
        return None  # another layout: the reader itself decides, and says what it needs to know


def _figures(reader: Reader) -> dict[str, Any]:
    """Return what the first table shows, as plain values."""
    found = reader.describe()
    stored = reader.cost(found.whole).stored_bytes
    return {
        "path": found.location.path,
        "dataset": found.location.dataset,
        "format": found.format,
        "shape": list(found.shape),
        "axes": found.axes,
        "dtype": found.dtype.str,
        "chunks": list(found.chunks) if found.chunks else None,
        "shards": list(found.shards) if found.shards else None,
        "codecs": list(found.codecs),
        "route": found.route,
        "stored_bytes": stored,
        "decoded_bytes": found.decoded_bytes,
    }


def _rank_costs(reader: Reader, spatial: str, halo: Halo, boundary: Boundary) -> list[RankCost]:
    found = reader.describe()
    blocks = parse_triple("--spatial", spatial)
    grid = ProcessGrid(spatial=blocks, world_size=prod(blocks), rank=0)
    costs = []
    for rank in grid.group_ranks:
        box = grid.at(rank).block(found.spatial).expand(halo)
        needed = found.shape[0] * box.size * found.dtype.itemsize
        costs.append(RankCost(rank, box, needed, block_cost(reader, box, boundary=boundary)))
    return costs


def _advice(reader: Reader, spatial: str, halo: Halo, boundary: Boundary) -> Advice:
    found = reader.describe()
    blocks = parse_triple("--spatial", spatial)
    grid = ProcessGrid(spatial=blocks, world_size=prod(blocks), rank=0)
    return advise(found.shape, found.dtype.itemsize, grid=grid, halo=halo, boundary=boundary)


def _show_advice(advice: Advice, costs: list[RankCost]) -> None:
    """Say what the best chunks for this grid would change."""
    now = sum(rank.cost.decoded_bytes for rank in costs) / sum(rank.needed for rank in costs)
    chunks = ",".join(map(str, advice.chunks))
    Console().print(
        f"Over all ranks {now:.3f} of what is needed is decoded; with chunks {chunks} it would be "
        f"{advice.decode_amplification:.3f} (voxload convert --chunks {chunks})."
    )


def _rank_figures(rank: RankCost) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "start": list(rank.box.start),
        "stop": list(rank.box.stop),
        "bytes_needed": rank.needed,
        "chunks": rank.cost.chunks,
        "bytes_read": rank.cost.stored_bytes,
        "bytes_decoded": rank.cost.decoded_bytes,
        "read_amplification": rank.read_amplification,
        "decode_amplification": rank.decode_amplification,
    }


def _show(figures: dict[str, Any], costs: list[RankCost]) -> None:
    table = Table(show_header=False)
    ratio = figures["decoded_bytes"] / figures["stored_bytes"] if figures["stored_bytes"] else 0.0
    rows = {
        "what": f"{figures['format']}" + (f", dataset {figures['dataset']}" if figures["dataset"] else ""),
        "shape (C, D, H, W)": _extents(figures["shape"]),
        "axes as stored": figures["axes"],
        "dtype": figures["dtype"],
        "chunks": _extents(figures["chunks"]) if figures["chunks"] else "none: contiguous",
        "shards": _extents(figures["shards"]) if figures["shards"] else "none",
        "codecs": ", ".join(figures["codecs"]) or "none",
        "read by": figures["route"],
        "stored": f"{format_bytes(figures['stored_bytes'])} ({ratio:.2f} times smaller than decoded)",
        "decoded": format_bytes(figures["decoded_bytes"]),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    console = Console()
    console.print(table)
    if costs:
        console.print(_cost_table(costs))


def _cost_table(costs: list[RankCost]) -> Table:
    table = Table(
        title="What each rank reads", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for name in ("rank", "block", "needed", "chunks", "read", "read/\nneeded", "decoded/\nneeded"):
        table.add_column(name, justify="left" if name == "block" else "right", no_wrap=True)
    for rank in costs:
        table.add_row(
            str(rank.rank),
            str(rank.box),
            format_bytes(rank.needed),
            str(rank.cost.chunks) if rank.cost.chunks else "-",
            format_bytes(rank.cost.stored_bytes),
            f"{rank.read_amplification:.3f}",
            f"{rank.decode_amplification:.3f}",
        )
    return table


def _show_catalog(catalog: Catalog, *, as_json: bool) -> None:
    stored = sum(catalog.table.column("stored_bytes").to_pylist())
    figures = {
        "samples": len(catalog.samples),
        "datasets": list(catalog.datasets),
        "targets": list(catalog.target_names),
        "shapes": sorted({tuple(shape) for shape in catalog.table.column("shape").to_pylist()}),
        "stored_bytes": stored,
        "volumes": len(catalog),
        "checksums": sum(1 for name in catalog.table.column("checksums").to_pylist() if name),
    }
    if as_json:
        print(json.dumps(figures))
        return
    table = Table(show_header=False)
    table.add_row("what", "catalogue")
    table.add_row("samples", str(figures["samples"]))
    table.add_row("datasets", ", ".join(name or "(unnamed)" for name in catalog.datasets))
    table.add_row("shapes as stored", ", ".join(_extents(shape) for shape in figures["shapes"]))
    table.add_row("targets", ", ".join(catalog.target_names) or "none")
    table.add_row("stored", format_bytes(stored))
    table.add_row("checksums", _share(figures["checksums"], figures["volumes"]))
    Console().print(table)


def _share(summed: int, volumes: int) -> str:
    """Say how many volumes have checksums."""
    if not summed:
        return "none (voxload verify --write records them)"
    return "of every chunk, compared at every read" if summed == volumes else f"of {summed} of {volumes} volumes"


def _extents(shape: Any) -> str:
    return " x ".join(map(str, shape))


def _plot(reader: Reader, path: Path) -> None:
    """Draw the three central planes of the first channel; only the chunks that hold them are read."""
    found = reader.describe()
    planes = [read_plane(reader, axis, extent // 2) for axis, extent in enumerate(found.spatial)]
    draw_slices(planes, path, title=f"{found.location}, channel 0 of {found.shape[0]}")
