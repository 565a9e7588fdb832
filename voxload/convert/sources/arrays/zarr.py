"""ZarrFolder: Zarr hierarchies of any layout, whose arrays of three or four axes are volumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from voxload.convert.manifest import only_member
from voxload.convert.sources.arrays.converted import placed
from voxload.convert.sources.axes import axes_by_count, cube_axes
from voxload.convert.sources.binary.flat import DEFAULT_DATASET
from voxload.convert.sources.coordinates import Coordinates, coordinates_of
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.names import check_extents, chosen_datasets
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source, plain_values
from voxload.errors import DataError
from voxload.files.regular import parse_json, read_document
from voxload.readers.axes import AxisOrder, declared_axes
from voxload.readers.faults import translated
from voxload.readers.zarr import ZarrFormat

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


_MANIFEST = "voxload"
"""Attribute of the hierarchies that voxload itself converted; it holds the targets."""


class ZarrFolder:
    """Any Zarr hierarchy in a folder, format 2 or 3: a sample, of which each array of three or four axes is a volume.

    Axes are those of the dimension names, where they are ``d``, ``h``, ``w`` and ``c``, or of the caller. zarr-python
    is imported when there is a hierarchy: whoever asks what a file of another format is would wait for it.
    """

    name = "Zarr"
    is_generic = True

    def claims(self, probe: Probe) -> bool:
        """Tell whether a folder has the metadata of a Zarr node, or ends in ``.zarr`` and should have them."""
        if not probe.path.is_dir():
            return False
        return probe.path.suffix == ".zarr" or any((probe.path / mark).is_file() for mark in MARKS)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the volumes, in the order of their names.

        Raises
        ------
        DataError
            When there are none, or metadata are damaged or missing.
        UsageError
            When axes have no names, or volumes have different extents.
        """
        from voxload.convert.sources.arrays.zarrcube import ZarrCube, describe_array  # noqa: PLC0415 - see the class

        root = ZarrNode.read(probe.path)
        targets = _targets(root, probe.path)
        names = ZarrFormat().datasets(str(probe.path))
        nodes = {name: ZarrNode.read(probe.path / name) for name in names}
        if not any(len(node.shape) in (3, 4) for node in nodes.values()):
            found = ", ".join(f"an array of shape {node.shape}" for node in nodes.values())
            raise DataError(
                f"{probe.path}", found=found or "no such array", expected="a Zarr array of three or four axes"
            )
        is_array = names == ("",)
        wanted = chosen_datasets(f"{probe.path}", [DEFAULT_DATASET] if is_array else names, hints)
        if is_array:
            wanted = {"": DEFAULT_DATASET}
        axes = axes_by_count(hints.axes, [len(nodes[name].shape) for name in wanted])
        cubes = {}
        for name, volume in wanted.items():
            node, subject = nodes[name], f"{probe.path}:{name}".removesuffix(":")
            given, declared = axes.get(len(node.shape)), declared_axes(node.dimensions)
            cube = describe_array(probe.path, name, cube_axes(subject, node.shape, given=given, declared=declared))
            along = _coordinates(probe.path, name, node, cube.order)
            cube = replace(cube, dataset=volume, targets=targets, attributes=plain_values(node.attributes))
            cube = replace(cube, coordinates=along)
            cubes[name] = placed(cube, root.attributes.get(_MANIFEST))
        check_extents(f"{probe.path}", list(cubes.values()))
        return tuple(ZarrCube(name, cube, missing=hints.missing) for name, cube in cubes.items())


def _coordinates(path: Path, name: str, node: ZarrNode, order: AxisOrder) -> Coordinates:
    """Return the arrays beside an array that have the names of its axes, as xarray writes them."""
    folder = name.rpartition("/")[0]
    plain = [axis if axis and "/" not in axis and axis not in (".", "..") else "" for axis in node.dimensions]
    beside = [axis and f"{folder}/{axis}".lstrip("/") for axis in plain] if name else []
    there = [one if one and any((path / one / mark).is_file() for mark in MARKS) else None for one in beside]
    return coordinates_of(order, node.shape, there, lambda one: ZarrFormat().read_vector(str(path), one))


def _targets(root: ZarrNode, path: Path) -> dict[str, float]:
    """Return the targets in the manifest of a hierarchy that voxload converted; none of others.

    Raises UsageError when several samples share its volume, which would be converted as one.
    """
    found = only_member(path, root.attributes.get(_MANIFEST)).get("targets")
    return {name: float(value) for name, value in found.items()} if isinstance(found, Mapping) else {}
