"""Plain values: attributes of a file that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_BOOKKEEPING = frozenset({"CLASS", "NAME", "DIMENSION_LIST", "DIMENSION_LABELS", "REFERENCE_LIST"})
"""Attributes by which HDF5 ties axes to their scales (HDF5 Dimension Scales Specification)."""


def plain_values(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that are numbers, texts, or lists and mappings of them; the others are left out.

    >>> plain_values({"units": "km/s", "broken": float("nan"), "CLASS": "DIMENSION_SCALE"})
    {'units': 'km/s'}
    """
    return {name: value for name, value in attributes.items() if name not in _BOOKKEEPING and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_plain(item) for name, item in value.items())
    # bool, int, float and str themselves: numpy's scalars are no JSON values.
    return type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))
