"""Pictures: figures of matplotlib's and planes of voxels in them, written as PNG files that appear whole.

matplotlib's object interface only, no pyplot: nothing here touches its global state, so reports may be drawn from any
thread. It is imported with the first figure, which takes a second: most commands draw nothing. It is of the extra
`plots`: whoever draws takes it from here, by `drawing`, and asks first, by `check_drawing`, where drawing comes last.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voxload.errors import UsageError
from voxload.files.atomic import replacing

if TYPE_CHECKING:  # see above
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Plane = npt.NDArray[Any]
"""A two-dimensional cut through a volume."""


def drawing(module: str, subject: str = "pictures") -> Any:
    """Return a module of matplotlib's; raises UsageError on behalf of `subject` where it cannot be imported."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            subject, found=str(error), expected="matplotlib", remedy='pip install "voxload[plots]"'
        ) from error


def check_drawing(subject: str) -> None:
    """Raise UsageError on behalf of `subject` where there is no matplotlib: long work should know before it begins."""
    drawing("matplotlib", subject)


def missing_for_drawing(subject: str) -> str:
    """Return what `check_drawing` raises, for who goes on without pictures and says so; empty where it is silent."""
    try:
        check_drawing(subject)
    except UsageError as error:
        return str(error)
    return ""


def blank(width: float, height: float) -> Figure:
    """Return a figure of so many inches that lays out its panels by itself."""
    figure: Figure = drawing("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    return figure


def write_png(figure: Figure, path: Path) -> None:
    """Write a figure; the file appears whole or not at all."""
    drawing("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)


def show_plane(panel: Axes, plane: Plane) -> Any:
    """Draw a plane and return the image; counts that span decades are shown as log(1 + x)."""
    values = np.log1p(plane.astype(np.float64)) if _is_count(plane) else plane
    return panel.imshow(values, cmap="magma", interpolation="nearest")


def scale_label(plane: Plane) -> str:
    """Return what the colours of `show_plane` stand for."""
    return "log(1 + voxel)" if _is_count(plane) else "voxel"


def _is_count(plane: Plane) -> bool:
    return plane.dtype.kind in "iu" and plane.size > 0 and int(plane.min()) >= 0
