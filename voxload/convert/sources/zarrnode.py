"""ZarrNode: what the metadata of a Zarr node say of themselves, format 2 or 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxload.documents import parse_json, read_document
from voxload.errors import DataError
from voxload.readers.faults import translated

MARKS = ("zarr.json", ".zarray", ".zgroup")
"""Files that make a folder a Zarr node: format 3, and arrays and groups of format 2."""

_XARRAY_DIMENSIONS = "_ARRAY_DIMENSIONS"


@dataclass(frozen=True, slots=True)
class ZarrNode:
    """A group or an array."""

    shape: tuple[int, ...]
    """Extents of an array; empty of a group."""
    dimensions: tuple[str | None, ...]
    """Names of the axes, where there are any: those of format 3, or xarray's attribute in format 2."""
    attributes: Mapping[str, Any]
    """The caller's attributes, without the names of axes."""

    @classmethod
    def read(cls, folder: Path) -> ZarrNode:
        """Read the metadata of the node in a folder; raises DataError when they are damaged or not there."""
        with translated(f"{folder}"):
            mark = next((folder / name for name in MARKS if (folder / name).is_file()), None)
            if mark is None:
                raise DataError(f"{folder}", found="no Zarr metadata", expected=f"one of {', '.join(MARKS)}")
            values = parse_json(read_document(mark))
            if mark.name == MARKS[0]:
                attributes, dimensions = values.get("attributes") or {}, values.get("dimension_names")
            else:
                side = folder / ".zattrs"
                attributes = parse_json(read_document(side)) if side.is_file() else {}
                dimensions = attributes.get(_XARRAY_DIMENSIONS)
            kept = {name: value for name, value in attributes.items() if name != _XARRAY_DIMENSIONS}
            return cls(tuple(values.get("shape", ())), tuple(dimensions or ()), kept)
