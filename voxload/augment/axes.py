"""Axes by their letters, as a caller names them."""

from __future__ import annotations

from typing import Any

from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES


def parse_axes(subject: str, letters: Any, *, least: int = 1) -> tuple[int, ...]:
    """Return the spatial axes that `letters` name, such as ``"HW"``.

    Raises UsageError for other letters, a letter twice, or fewer than `least`.
    """
    named = letters.upper() if isinstance(letters, str) else ""
    if len(named) < least or len(set(named)) < len(named) or set(named) - set(SPATIAL_AXES):
        wanted = f"{least} or more of {SPATIAL_AXES!r}, each once"
        raise UsageError(f"axes of {subject}", found=repr(letters), expected=wanted)
    return tuple(SPATIAL_AXES.index(letter) for letter in named)
