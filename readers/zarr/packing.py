"""The CF attributes of a Zarr array, xarray's way of writing them in format 2 included."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr
from zarr.core.metadata import ArrayV2Metadata

from voxload.readers.cfpacking import FILLS, check_packing

_XARRAY_DIMENSIONS = "_ARRAY_DIMENSIONS"
"""Attribute by which xarray names axes in format 2."""


def check_unpacked(array: zarr.Array[Any], subject: str) -> None:
    """Refuse an array whose numbers stand for others; see `voxload.readers.cfpacking`. Costs no request.

    In format 2 xarray keeps ``_FillValue`` not as an attribute but as the array's fill value. Zero is zarr's own
    default there and says nothing; what else an array of xarray's has marks voxels without a value.
    """
    attributes = dict(array.metadata.attributes)
    fill = array.metadata.fill_value
    is_xarray = isinstance(array.metadata, ArrayV2Metadata) and _XARRAY_DIMENSIONS in attributes
    if is_xarray and fill is not None and np.asarray(fill).dtype.kind in "iuf" and fill != 0:
        attributes.setdefault(FILLS[0], fill)
    check_packing(subject, attributes, np.dtype(array.dtype))
