"""Converted: what a volume that voxload converted keeps when it is converted again: where its voxels lie."""

from __future__ import annotations

from dataclasses import replace

from voxload.convert.manifest import AXES, Manifest
from voxload.convert.sources.affine import Affine
from voxload.convert.sources.protocol import RawCube
from voxload.errors import DataError


def placed(cube: RawCube, manifest: object) -> RawCube:
    """Return a cube with the spacing, affine and coordinates that the manifest beside it has.

    It is returned as it is where there is no manifest of this version, or the caller names other axes.
    """
    try:
        found = Manifest.from_json(manifest, f"{cube.path}")
    except DataError:
        return cube
    if found.dataset != cube.dataset or cube.order.axes != AXES or len(found.parts) != 1:
        return cube
    (part,) = found.parts
    return replace(
        cube,
        spacing=part.spacing,
        coordinates=part.coordinates,
        affine=None if part.affine is None else Affine.of_voxels(part.affine, cube.spatial_order),
    )
