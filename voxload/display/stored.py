"""Stored: what a stored volume says of itself, with the chunks that it is cut into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from voxload.display.description import Description
from voxload.display.grid_picture import Cuts, grid_picture
from voxload.display.table import extents, joined


class Stored(Protocol):
    """What is known of a volume without reading a voxel; `voxload.readers.VolumeInfo` is one."""

    @property
    def location(self) -> Any:
        """Where it is stored; its text names file and dataset."""
        ...

    @property
    def format(self) -> str:
        """Storage format in words."""
        ...

    @property
    def axes(self) -> str:
        """Order of the axes as stored."""
        ...

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Extents (C, D, H, W)."""
        ...

    @property
    def dtype(self) -> Any:
        """Stored type."""
        ...

    @property
    def chunks(self) -> tuple[int, int, int, int] | None:
        """Extents of a chunk; None where it is stored in one piece."""
        ...

    @property
    def shards(self) -> tuple[int, int, int, int] | None:
        """Extents of a shard; None where each chunk has an object of its own."""
        ...

    @property
    def codecs(self) -> tuple[str, ...]:
        """Names of the codecs."""
        ...

    @property
    def route(self) -> str:
        """How voxels are read."""
        ...


def stored_description(info: Stored) -> Description:
    """Return what is said of a stored volume, with its chunks drawn as far as they can be told apart."""
    where, spatial = str(info.location), info.shape[1:]
    sizes, part = (spatial, "piece") if info.chunks is None else (info.chunks[1:], "chunk")
    facts = {
        "stored in": where,
        "format": info.format,
        "shape (C, D, H, W)": f"{extents(info.shape)} {info.dtype}, stored as {info.axes}",
        "chunks": "none: in one piece" if info.chunks is None else extents(info.chunks),
        "shards": "" if info.shards is None else extents(info.shards),
        "codecs": joined(info.codecs),
        "read by": info.route,
    }
    parts = [where, f"{extents(info.shape)} {info.dtype}", info.format]
    parts += [] if info.chunks is None else [f"chunks {extents(info.chunks)}"]
    picture = ""
    if min(spatial) > 0:  # what has no voxels is not drawn
        picture = grid_picture(Cuts(tuple(map(_bounds, spatial, sizes)), part=part))
    return Description(type(info).__name__, tuple(parts), facts, picture=picture)


def _bounds(extent: int, size: int) -> Sequence[int]:
    """Return where the chunks along an axis begin, and its end."""
    return [*range(0, extent, max(size, 1)), extent]
