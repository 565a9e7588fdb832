"""check_alignment: refuses an image and a label of one case whose headers put them at different places."""

from __future__ import annotations

from collections.abc import Sequence

from voxload.convert.sources.protocol import RawCube
from voxload.errors import UsageError

_TOLERANCE = 0.05
"""Voxels by which the places of one voxel may differ.

Headers round: float32 of a place a metre away is good to 6e-5 mm, and of a direction to 1e-7, which 1,000 voxels make
1e-4 of a voxel; six digits of a text are good to 0.005 mm there, a hundredth of a fine voxel. Wrong by mistake is half
a voxel (centres for corners) or more. A tenth of that mistake lies well between the two.
"""


def check_alignment(subject: str, cubes: Sequence[RawCube]) -> None:
    """Refuse volumes of one sample of which the same voxel lies at different places.

    Those whose headers say nothing of that, or in another frame, cannot be compared and are taken as they are.

    Raises
    ------
    UsageError
        Naming two of them and the affine of each.
    """
    known = [(cube, cube.affine) for cube in cubes if cube.affine is not None]
    for place, (cube, affine) in enumerate(known):
        first, expected = next(one for one in known[: place + 1] if one[1].frame == affine.frame)
        extents = [extent for extent, axis in zip(cube.shape, cube.order.axes, strict=True) if axis != "C"][::-1]
        apart = expected.distance(affine, extents) / min(expected.voxel, affine.voxel)
        if apart > _TOLERANCE:
            raise UsageError(
                subject,
                found=f"{cube.dataset} ({cube.path}) with the affine {affine}, {apart:.3g} voxels from {first.dataset}",
                expected=f"{expected}, as {first.dataset} ({first.path}) has it",
                remedy=(
                    "resample one onto the voxels of the other; where only a header is wrong, write the right affine "
                    "into it; to convert them as they lie, convert each from a folder of its own"
                ),
            )
