"""Dimensions: what a Zarr array calls its axes; read without zarr-python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voxload.readers.axes import Names

XARRAY_DIMENSIONS = "_ARRAY_DIMENSIONS"
"""Attribute by which xarray names axes in format 2."""


def named_dimensions(own: Any, attributes: Mapping[str, Any], ndim: int) -> Names:
    """Return the names of an array's dimensions: format 3's `own`, or those that xarray keeps in an attribute."""
    named = own or attributes.get(XARRAY_DIMENSIONS)
    if not isinstance(named, list | tuple) or len(named) != ndim:
        return None
    return [name if isinstance(name, str) else None for name in named]
