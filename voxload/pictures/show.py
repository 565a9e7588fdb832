"""show: a volume's three middle planes, with the blocks of a grid and their halos."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxload.errors import NotFoundError, StorageError, UsageError
from voxload.files.atomic import replacing
from voxload.files.pictures import check_drawing
from voxload.geometry import Boundary, Halo
from voxload.grid import ProcessGrid, spatial_counts
from voxload.pictures.planes import Array
from voxload.pictures.slices import Overlay, draw_slices

if TYPE_CHECKING:  # drawing is what imports it
    from matplotlib.figure import Figure

_KINDS = (".png", ".pdf", ".svg")
"""Endings of files that a picture is saved as."""


def show(
    volume: Any,
    grid: ProcessGrid | Sequence[int] | None = None,
    *,
    halo: int | Sequence[int] | Halo = 0,
    boundary: str | Boundary = Boundary.ZERO,
    spacing: Sequence[float] | None = None,
    channel: int = 0,
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw the three middle planes of a volume on one colour scale, in true proportions.

    Lines are the bounds of the grid's blocks, bands their halos. Voxels that are NaN or infinite are green, and counted
    in the caption. Counts from 0 on that span decades have colours by log(1 + voxel); numbers at the bar are voxels'.
    Safe in any thread; matplotlib is imported when the first picture is drawn, and its global state stays as it is.

    Parameters
    ----------
    volume
        ``(D, H, W)`` or ``(C, D, H, W)``, whole numbers or floats: an array of numpy's, a tensor of torch's, or what
        is read when it is indexed, such as a dataset of h5py's or an array of zarr's, of which only the three planes
        are read. Of an item of a data set, a tuple or a mapping, the first volume is taken.
    grid
        What cuts the volume into blocks; three counts along (d, h, w) do as well. None draws no blocks.
    halo
        Voxels wanted around each block: one width, or one per (d, h, w).
    boundary
        What lies outside the volume: at a ``periodic`` one, bands at its ends are the halos of the blocks there.
    spacing
        Distances of neighbouring voxels along (D, H, W), in any one unit; cubes by default.
    channel
        Which channel is drawn.
    path
        A file, PNG, PDF or SVG, that gets the picture too; it appears whole or not at all.

    Returns
    -------
    matplotlib.figure.Figure
        A notebook shows it where it is the last value of a cell.

    Raises
    ------
    UsageError
        For what is no volume of numbers, a grid of more blocks than voxels, a spacing that is none, a file of another
        kind, and where matplotlib is not installed.
    NotFoundError, StorageError
        When there is no folder for the file, or it takes none.
    """
    check_drawing("voxload.show")
    place = None if path is None else _checked(Path(path))
    array, edges = Array.of(volume, channel), _edges(spacing)
    overlay = Overlay(_bounds(grid, array.extents), Halo.parse(halo), Boundary.parse(boundary))
    figure = draw_slices(array.read(), title=array.title, spacing=edges, overlay=overlay)
    if place is not None:
        _save(figure, place)
    return figure


def _bounds(grid: ProcessGrid | Sequence[int] | None, extents: tuple[int, int, int]) -> tuple[Sequence[int], ...]:
    if grid is None:
        return ()
    if isinstance(grid, ProcessGrid):
        return grid.bounds(extents)
    counts = spatial_counts(grid)
    return ProcessGrid(counts, math.prod(counts)).bounds(extents)


def _edges(spacing: Sequence[float] | None) -> tuple[float, ...] | None:
    """Return three positive lengths; raises UsageError for anything else."""
    if spacing is None:
        return None
    try:
        edges = tuple(float(edge) for edge in spacing)
    except (TypeError, ValueError):
        edges = ()
    if len(edges) != 3 or not all(edge > 0 and math.isfinite(edge) for edge in edges):
        raise UsageError("spacing", found=repr(spacing), expected="three lengths above 0, of (D, H, W)")
    return edges


def _checked(path: Path) -> Path:
    if path.suffix.lower() not in _KINDS:
        raise UsageError(f"picture {path}", found=f"ending {path.suffix!r}", expected=f"one of {', '.join(_KINDS)}")
    if path.is_dir():
        raise UsageError(f"picture {path}", found="a folder", expected="the name of a file")
    return path


def _save(figure: Figure, path: Path) -> None:
    kind = path.suffix.lower().removeprefix(".")
    try:
        with replacing(path) as temporary:
            figure.savefig(temporary, format=kind, dpi=150)
    except FileNotFoundError as error:
        raise NotFoundError(f"picture {path}", found="no such folder", remedy="make the folder first") from error
    except OSError as error:
        raise StorageError(f"picture {path}", found=str(error).splitlines()[0], remedy="nothing was kept") from error
