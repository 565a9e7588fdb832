"""ZarrFolder: Zarr hierarchies of any layout, whose arrays of three or four axes are volumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from voxload.convert.manifest import only_member
from voxload.convert.sources.arrays.converted import placed
from voxload.convert.sources.arrays.series import Series, parts
from voxload.convert.sources.arrays.zarrarrays import MARKS, ZarrNode, wanted_arrays
from voxload.convert.sources.axes import array_axes, axes_by_count
from voxload.convert.sources.coordinates import Coordinates, coordinates_of
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.names import check_extents
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source, plain_values
from voxload.readers.axes import AxisOrder
from voxload.readers.zarr import ZarrFormat

_MANIFEST = "voxload"
"""Attribute of the hierarchies that voxload itself converted; it holds the targets."""


class ZarrFolder:
    """Any Zarr hierarchy in a folder, format 2 or 3: a sample, of which each array of three or four axes is a volume.

    Axes are the caller's, or those that dimensions name, as a data set reads them. Where samples or time steps are
    among them, each is a sample. An OME-Zarr image is one volume, its finest level. zarr-python is imported when there
    is a hierarchy: whoever asks what a file of another format is would wait for it.
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
            When axes have no names, or such that make no volume, or volumes have different extents.
        """
        from voxload.convert.sources.arrays.zarrcube import ZarrCube, describe_array  # noqa: PLC0415 - see the class

        root = ZarrNode.read(probe.path)
        targets = _targets(root, probe.path)
        arrays = wanted_arrays(probe.path, hints)
        axes = axes_by_count(hints.axes, [len(array.node.shape) for array in arrays])
        cubes, series = {}, {}
        for array in arrays:
            node, name = array.node, array.name
            subject, given = f"{probe.path}:{name}".removesuffix(":"), axes.get(len(node.shape))
            order = array_axes(subject, node.shape, given=given, namings=(array.names,))
            series[name] = Series.of(order, node.shape)
            cube = replace(
                describe_array(probe.path, name, order),
                dataset=array.volume,
                targets=targets,
                attributes=plain_values(node.attributes),
                coordinates=_coordinates(probe.path, name, node, order),
                coarser=array.coarser,
            )
            cubes[name] = placed(cube, root.attributes.get(_MANIFEST))
        check_extents(f"{probe.path}", list(cubes.values()))
        found: list[Source] = []
        for index, part in parts(f"{probe.path}", series, has_targets=bool(targets)):
            for name, cube in cubes.items():
                one = series[name]
                mine = one.part_of(cube, index, part)
                found.append(ZarrCube(name, mine, missing=hints.missing, series=one, index=index))
        return tuple(found)


def _coordinates(path: Path, name: str, node: ZarrNode, order: AxisOrder) -> Coordinates:
    """Return the arrays beside an array that have the names of its axes, as xarray writes them."""
    folder = name.rpartition("/")[0]
    plain = [axis if axis and "/" not in axis and axis not in (".", "..") else "" for axis in node.dimensions or ()]
    beside = [axis and f"{folder}/{axis}".lstrip("/") for axis in plain] if name else []
    there = [one if one and any((path / one / mark).is_file() for mark in MARKS) else None for one in beside]
    return coordinates_of(order, node.shape, there, lambda one: ZarrFormat().read_vector(str(path), one))


def _targets(root: ZarrNode, path: Path) -> dict[str, float]:
    """Return the targets in the manifest of a hierarchy that voxload converted; none of others.

    Raises UsageError when several samples share its volume, which would be converted as one.
    """
    found = only_member(path, root.attributes.get(_MANIFEST)).get("targets")
    return {name: float(value) for name, value in found.items()} if isinstance(found, Mapping) else {}
