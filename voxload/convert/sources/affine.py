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
_MILLIMETRES = {"m": 1e3, "meter": 1e3, "cm": 10.0, "um": 1e-3, "µm": 1e-3, "micron": 1e-3}
"""Millimetres in a unit; any other one is taken for millimetres, as by all programs."""
_AXES = 3


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
        whole = np.column_stack([moves.T, start]) * _MILLIMETRES.get(unit.strip().lower(), 1.0)
        if not np.isfinite(whole).all():
            return None
        signs = _TURNS.get(frame.lower().removesuffix("-time"))
        if signs is not None:
            frame, whole = PATIENT, whole * np.array(signs)[:, None] + 0.0
        return cls(frame, tuple((row[0], row[1], row[2], row[3]) for row in whole.tolist()))

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
