"""ZarrArrays: which arrays of a Zarr hierarchy are wanted as volumes; of an OME-Zarr image, its finest level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxload.convert.sources.axes import axes_counts
from voxload.convert.sources.binary.flat import DEFAULT_DATASET
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.names import chosen_datasets
from voxload.errors import DataError
from voxload.files.regular import parse_json, read_document
from voxload.readers.axes import Names
from voxload.readers.faults import translated
from voxload.readers.zarr.dimensions import XARRAY_DIMENSIONS, named_dimensions

MARKS = ("zarr.json", ".zarray", ".zgroup")
"""Files that make a folder a Zarr node: format 3, and arrays and groups of format 2."""


@dataclass(frozen=True, slots=True)
class ZarrNode:
    """A group or an array."""

    shape: tuple[int, ...]
    """Extents of an array; empty of a group."""
    dimensions: Names
    """Names of the axes, where there are any: those of format 3, or xarray's attribute."""
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
                attributes, own = values.get("attributes") or {}, values.get("dimension_names")
            else:
                side = folder / ".zattrs"
                attributes, own = parse_json(read_document(side)) if side.is_file() else {}, None
            kept = {name: value for name, value in attributes.items() if name != XARRAY_DIMENSIONS}
            shape = tuple(values.get("shape", ()))
            return cls(shape, named_dimensions(own, attributes, len(shape)), kept)


@dataclass(frozen=True, slots=True)
class ZarrArray:
    """An array that is wanted."""

    name: str
    """Its name in the hierarchy; empty where the folder is one array."""
    volume: str
    """What its volume is called."""
    node: ZarrNode
    """What its metadata say."""
    names: Names
    """Names of its axes: those of the image of which it is a level, else its own."""
    coarser: tuple[str, ...] = ()
    """Names of the coarser levels of the image that it stands for."""


def wanted_arrays(folder: Path, hints: Hints) -> list[ZarrArray]:
    """Return the arrays that are wanted, in the order of their names.

    An image is called as its group. One of its levels is a volume of its own only where the caller names it.

    Raises
    ------
    NotFoundError
        When there is no array that the caller names.
    DataError
        When there is none at all, or metadata are damaged.
    """
    from voxload.readers.zarr.arrays import local_volumes  # noqa: PLC0415 - brings zarr-python

    counts = axes_counts(hints.axes)
    names, images = local_volumes(str(folder), counts)
    levels = {_below(group, level): image.axes for group, image in images.items() for level in image.levels}
    called = {name: name or DEFAULT_DATASET for name in names if name not in levels}
    coarser = {}
    for group, image in images.items():
        finest, *others = (_below(group, level) for level in image.levels)
        called[finest] = group or (finest if DEFAULT_DATASET in called.values() else DEFAULT_DATASET)
        coarser[finest] = tuple(others)
    for level in {name.strip("/") for name in hints.datasets} & levels.keys():
        called[level], coarser[level] = level, ()
    nodes = {name: ZarrNode.read(folder / name) for name in called}
    if not nodes or ("" in nodes and len(nodes[""].shape) not in counts):
        found = ", ".join(f"an array of shape {node.shape}" for node in nodes.values())
        raise DataError(f"{folder}", found=found or "no such array", expected="a Zarr array of three or four axes")
    wanted = chosen_datasets(f"{folder}", sorted(called.values()), hints)
    return [
        ZarrArray(name, wanted[call], nodes[name], levels.get(name, nodes[name].dimensions), coarser.get(name, ()))
        for name, call in sorted(called.items(), key=lambda item: item[1])
        if call in wanted
    ]


def _below(group: str, name: str) -> str:
    return f"{group}/{name}" if group else name
