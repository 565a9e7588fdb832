"""filled: cubes whose voxels that were never written get the fill value, and say so in the manifest."""

from __future__ import annotations

from dataclasses import replace

from voxload.convert.sources.protocol import RawCube
from voxload.readers.protocol import Missing

_ATTRIBUTE = "voxels_never_written"
"""What the manifest calls it; a later run with another wish then converts the cube again."""


def filled(cube: RawCube, missing: Missing) -> RawCube:
    """Return a cube with what is done about voxels that were never written among its attributes."""
    if missing is Missing.ERROR:
        return cube
    return replace(cube, attributes={**cube.attributes, _ATTRIBUTE: str(missing)})
