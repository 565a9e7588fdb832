"""A stored volume: what it is, how it is stored, and what reading it costs each rank, in figures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from voxload.cli.inspect.planes import Cube, central_planes, draw_planes
from voxload.cli.options import parse_triple
from voxload.convert.chunk_advice import Advice, advise
from voxload.convert.sources.protocol import ReadInto
from voxload.geometry import Boundary, Box, Halo
from voxload.grid import ProcessGrid
from voxload.pictures.slices import Overlay
from voxload.readers import ReadCost, Reader, VolumeInfo, block_cost
from voxload.units import format_bytes


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

    def figures(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "rank": self.rank,
            "start": list(self.box.start),
            "stop": list(self.box.stop),
            "bytes_needed": self.needed,
            "chunks": self.cost.chunks,
            "bytes_read": self.cost.stored_bytes,
            "bytes_decoded": self.cost.decoded_bytes,
            "read_amplification": self.read_amplification,
            "decode_amplification": self.decode_amplification,
        }


@dataclass(frozen=True, slots=True)
class Ranks:
    """Who would read a volume."""

    spatial: str
    """Grid d,h,w as the caller wrote it; empty for nobody."""
    halo: Halo
    """Voxels wanted around each block."""
    boundary: Boundary
    """What lies outside the sample."""

    def costs(self, reader: Reader) -> list[RankCost]:
        """Return what each rank reads; nothing where there is no grid."""
        if not self.spatial:
            return []
        found, grid = reader.describe(), self._grid()
        costs = []
        for rank in grid.group_ranks:
            box = grid.at(rank).block(found.spatial).expand(self.halo)
            needed = found.shape[0] * box.size * found.dtype.itemsize
            costs.append(RankCost(rank, box, needed, block_cost(reader, box, boundary=self.boundary)))
        return costs

    def advice(self, reader: Reader) -> Advice | None:
        """Return the chunks that would serve them best; None where there is no grid."""
        if not self.spatial:
            return None
        found = reader.describe()
        return advise(found.shape, found.dtype.itemsize, grid=self._grid(), halo=self.halo, boundary=self.boundary)

    def overlay(self, found: VolumeInfo) -> Overlay:
        """Return what cuts a volume: the blocks of the grid, where there is one, their halos, and the chunks."""
        bounds = self._grid().bounds(found.spatial) if self.spatial else ()
        window = found.location.window
        origin = (0, 0, 0) if window is None else window.start
        chunks = None if found.chunks is None else found.chunks[1:]
        return Overlay(bounds, self.halo, self.boundary, chunks, origin)

    def _grid(self) -> ProcessGrid:
        blocks = parse_triple("--spatial", self.spatial)
        return ProcessGrid(spatial=blocks, world_size=prod(blocks), rank=0)


def volume_figures(reader: Reader) -> dict[str, Any]:
    """Return what a volume is, as plain values."""
    found = reader.describe()
    window = found.location.window
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
        "stored_bytes": reader.cost(found.whole).stored_bytes,
        "decoded_bytes": found.decoded_bytes,
        "window": None if window is None else {"start": list(window.start), "stop": list(window.box.stop)},
    }


def plot_volume(
    reader: Reader,
    path: Path,
    ranks: Ranks,
    *,
    sample: str = "",
    spacing: tuple[float, ...] | None = None,
    unpacks_to: np.dtype[Any] | None = None,
) -> None:
    """Draw the three central planes of the first channel, with the ranks' blocks and the stored chunks.

    Only the chunks that hold the planes are read. `unpacks_to` is the type of what stored numbers stand for, which is
    then drawn; None draws them as they are.
    """
    found = reader.describe()
    cube = Cube.of_volume(found, spacing)
    name = f"{found.location}, sample {sample}" if sample else f"{found.location}"
    read_into: ReadInto = reader.read_into
    if unpacks_to is not None:
        from voxload.cli.inspect.unpacked import unpacked  # noqa: PLC0415 - brings torch, which works them out

        cube, read_into = replace(cube, dtype=unpacks_to), unpacked(reader)
    slices = central_planes(cube, read_into)
    draw_planes(slices, path, cube=cube, name=name, overlay=ranks.overlay(found))


def volume_table(figures: Mapping[str, Any], more: Mapping[str, str], parts: Mapping[str, str]) -> Table:
    """Return what a volume is; `more` are further rows above, `parts` say what of it is an item."""
    ratio = figures["decoded_bytes"] / figures["stored_bytes"] if figures["stored_bytes"] else 0.0
    window = figures["window"]
    rows = {
        **more,
        "what": f"{figures['format']}" + (f", dataset {figures['dataset']}" if figures["dataset"] else ""),
        **parts,
        "shape (C, D, H, W)": extents(figures["shape"]),
        "axes as stored": figures["axes"],
        "dtype": figures["dtype"],
        "chunks": extents(figures["chunks"]) if figures["chunks"] else "none: contiguous",
        "shards": extents(figures["shards"]) if figures["shards"] else "none",
        "codecs": ", ".join(figures["codecs"]) or "none",
        "read by": figures["route"],
        "stored": f"{format_bytes(figures['stored_bytes'])} ({ratio:.2f} times smaller than decoded)",
        "decoded": format_bytes(figures["decoded_bytes"]),
    }
    if window is not None:
        rows["voxels of the volume"] = f"{Box(tuple(window['start']), tuple(window['stop']))}, as a window of it"
    table = Table(show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def cost_table(costs: Sequence[RankCost]) -> Table:
    """Return what each rank reads."""
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


def advice_line(advice: Advice, costs: Sequence[RankCost], *, converts: bool) -> str:
    """Say what the best chunks for this grid would change, which a conversion writes where it takes the volume."""
    now = sum(rank.cost.decoded_bytes for rank in costs) / sum(rank.needed for rank in costs)
    chunks = ",".join(map(str, advice.chunks))
    if round(advice.decode_amplification, 3) >= round(now, 3):
        return f"Over all ranks {now:.3f} of what is needed is decoded; no chunks would do with less."
    how = f" (voxload convert --chunks {chunks})" if converts else ""
    better = f"with chunks {chunks} it would be {advice.decode_amplification:.3f}{how}"
    return f"Over all ranks {now:.3f} of what is needed is decoded; {better}."


def extents(shape: Sequence[int]) -> str:
    """Return extents as people write them."""
    return " x ".join(map(str, shape))
