"""StoredVolume: what a stored volume is, how it is stored, and what reading it costs each rank of a grid."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from voxload.advice import Advice, advise
from voxload.cli.info_planes import Cube, central_planes, draw_planes
from voxload.cli.options import parse_triple
from voxload.geometry import Boundary, Box, Halo
from voxload.grid import ProcessGrid
from voxload.readers import ReadCost, Reader, block_cost


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


def plot_volume(reader: Reader, path: Path, *, sample: str = "") -> None:
    """Draw the three central planes of the first channel; only the chunks that hold them are read."""
    found = reader.describe()
    cube = Cube.of_volume(found)
    name = f"{found.location}, sample {sample}" if sample else f"{found.location}"
    draw_planes(central_planes(cube, reader.read_into), path, cube=cube, name=name)
