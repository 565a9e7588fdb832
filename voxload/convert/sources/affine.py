"""Affine: where the voxels of a medical image lie, as its header says, and how far that is from what another says.

NIfTI counts millimetres to the right, the front and the top of a patient, MetaImage and NRRD's LPS to the left, the
back and the top; all are turned to the first here. Source: nifti1.h; ITK Software Guide, "Image orientation";
Definition of the NRRD file format, section 5 (space).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

PATIENT = "right-anterior-superior"
"""Frame of images whose header says where the patient is."""
_TURNS = {
    "right-anterior-superior": (1, 1, 1),
    "ras": (1, 1, 1),
    "left-anterior-superior": (-1, 1, 1),
    "las": (-1, 1, 1),
    "left-posterior-superior": (-1, -1, 1),
    "lps": (-1, -1, 1),
}
"""Signs that turn a frame of the patient to the first; those of NRRD may end in ``-time``."""
_MILLIMETRES = {
    **dict.fromkeys(("", "unknown", "mm", "millimeter", "millimeters", "millimetre", "millimetres"), 1.0),
    **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), 1e3),
    **dict.fromkeys(("cm", "centimeter", "centimeters", "centimetre", "centimetres"), 10.0),
    **dict.fromkeys(("um", "\u00b5m", "\u03bcm", "micron", "microns", "micrometer", "micrometre"), 1e-3),
    **dict.fromkeys(("nm", "nanometer", "nanometre"), 1e-6),
}
"""Millimetres in a unit. A header without one is taken for millimetres, as by all programs."""
_AXES = 3
_REACH = 1e-9, 1e9
"""mm that a voxel may measure at least, and a place may be away at most; what is beyond is no place in a patient."""


def millimetres(unit: str) -> float:
    """Return the millimetres in a unit, 1 where it is not named; NaN in one that is no length known here."""
    return _MILLIMETRES.get(unit.strip().lower(), np.nan)


def plain_spacing(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Return distances (D, H, W) in mm; None where one is not known or no distance.

    >>> plain_spacing([3, 0.7, 0.7]), plain_spacing([float("nan"), 1, 1]), plain_spacing([0, 1, 1])
    ((3.0, 0.7, 0.7), None, None)
    """
    depth, height, width = map(float, values)
    least, most = _REACH
    return (depth, height, width) if all(least <= value <= most for value in (depth, height, width)) else None


@dataclass(frozen=True, slots=True)
class Affine:
    """A map from the indices of a voxel, the axis that runs fastest first, to a place."""

    frame: str
    """What places are counted in; only equal frames can be compared."""
    rows: tuple[tuple[float, float, float, float], ...]
    """Three rows: the steps along each axis, then the place of the first voxel, in mm of the frame."""

    @classmethod
    def of(cls, frame: str, steps: Any, origin: Any, *, unit: str = "mm") -> Self | None:
        """Return the map of images in a frame; None where a number is missing.

        Parameters
        ----------
        frame
            Its name: one of the patient's, or any other, of which none is the same as another.
        steps
            ``(3, 3)``: a row for each axis, the fastest first, with the step from a voxel to the next.
        origin
            ``(3,)``: where the first voxel is.
        unit
            Of both.
        """
        moves, start = np.asarray(steps, np.float64), np.asarray(origin, np.float64)
        if moves.shape != (_AXES, _AXES) or start.shape != (_AXES,):
            return None
        scale = millimetres(unit)
        whole = np.column_stack([moves.T, start]) * (1.0 if np.isnan(scale) else scale)
        if not np.isfinite(whole).all():
            return None
        if np.isnan(scale):  # only comparable with what is counted in the same unit
            return cls(f"{frame} in {unit}", _rows(whole))
        signs = _TURNS.get(frame.lower().removesuffix("-time"))
        if signs is not None:
            frame, whole = PATIENT, whole * np.array(signs)[:, None] + 0.0
        return cls(frame, _rows(whole))

    @classmethod
    def of_voxels(cls, matrix: Sequence[float], axes: Sequence[int]) -> Self:
        """Return the map that `from_voxels` turned into a matrix, for the same axes."""
        whole = np.reshape(matrix, (_AXES + 1, _AXES + 1))[:_AXES]
        return cls(PATIENT, _rows(np.column_stack([whole[:, list(axes[::-1])], whole[:, _AXES]])))

    def from_voxels(self, axes: Sequence[int]) -> tuple[float, ...] | None:
        """Return the 4 x 4 matrix from indices (d, h, w, 1) to mm to the patient's right, front and top, row by row.

        None where the frame is not the patient's, or the axes do not span a space.

        Parameters
        ----------
        axes
            Spatial axes (0 for D, 1 for H, 2 for W) in the order of the file, slowest first.
        """
        rows = np.array(self.rows)
        if self.frame != PATIENT or np.abs(rows).max() > _REACH[1]:
            return None
        found = np.eye(_AXES + 1)
        found[:_AXES, _AXES] = rows[:, _AXES]
        found[:_AXES, list(axes[::-1])] = rows[:, :_AXES]
        if plain_spacing(spacing_of(found)) is None or np.linalg.matrix_rank(found[:_AXES, :_AXES]) < _AXES:
            return None
        return tuple(found.ravel().tolist())

    @property
    def voxel(self) -> float:
        """Shortest edge of a voxel in mm; 1 where all of them are nothing."""
        edges = np.linalg.norm(np.array(self.rows)[:, :_AXES], axis=0)
        return float(min((edge for edge in edges if edge > 0), default=1.0))

    def distance(self, other: Affine, extents: Sequence[int]) -> float:
        """Return how far one voxel of an image of `extents` may be from itself, in mm: at a corner it is farthest."""
        corners = np.array(list(itertools.product(*((0, extent - 1) for extent in extents))), np.float64)
        apart = np.array(self.rows) - np.array(other.rows)
        return float(np.linalg.norm(corners @ apart[:, :_AXES].T + apart[:, _AXES], axis=1).max())

    def __str__(self) -> str:
        return "[" + ", ".join("[" + ", ".join(f"{value:.7g}" for value in row) + "]" for row in self.rows) + "]"


def spacing_of(matrix: Any) -> tuple[float, float, float]:
    """Return the lengths of the steps along the axes of a 4 x 4 matrix, or of its 16 numbers."""
    first, second, third = np.linalg.norm(np.reshape(matrix, (_AXES + 1, _AXES + 1))[:_AXES, :_AXES], axis=0).tolist()
    return first, second, third


def _rows(whole: Any) -> tuple[tuple[float, float, float, float], ...]:
    return tuple((row[0], row[1], row[2], row[3]) for row in whole.tolist())
