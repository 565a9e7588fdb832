"""ZarrFolder: Zarr hierarchies of any layout, whose arrays of three or four axes are volumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from voxload.convert.sources.cubeaxes import axes_by_count, cube_axes
from voxload.convert.sources.flat import DEFAULT_DATASET
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.members import only_member
from voxload.convert.sources.plainvalues import plain_values
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.volumenames import check_extents, chosen
from voxload.convert.sources.zarrcube import ZarrCube, describe_array
from voxload.convert.sources.zarrnode import MARKS, ZarrNode
from voxload.errors import DataError
from voxload.readers.axes import declared_axes
from voxload.readers.zarr import ZarrFormat

_MANIFEST = "voxload"
"""Attribute of the hierarchies that voxload itself converted; it holds the targets."""


class ZarrFolder:
    """Any Zarr hierarchy in a folder, format 2 or 3: a sample, of which each array of three or four axes is a volume.

    Axes are those of the dimension names, where they are ``d``, ``h``, ``w`` and ``c``, or of the caller.
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
        targets = _targets(ZarrNode.read(probe.path), probe.path)
        names = ZarrFormat().datasets(str(probe.path))
        nodes = {name: ZarrNode.read(probe.path / name) for name in names}
        if not any(len(node.shape) in (3, 4) for node in nodes.values()):
            found = ", ".join(f"an array of shape {node.shape}" for node in nodes.values())
            raise DataError(
                f"{probe.path}", found=found or "no such array", expected="a Zarr array of three or four axes"
            )
        is_array = names == ("",)
        wanted = chosen(f"{probe.path}", [DEFAULT_DATASET] if is_array else names, hints)
        if is_array:
            wanted = {"": DEFAULT_DATASET}
        axes = axes_by_count(hints.axes, [len(nodes[name].shape) for name in wanted])
        cubes = {}
        for name, volume in wanted.items():
            node, subject = nodes[name], f"{probe.path}:{name}".removesuffix(":")
            given, declared = axes.get(len(node.shape)), declared_axes(node.dimensions)
            cube = describe_array(probe.path, name, cube_axes(subject, node.shape, given=given, declared=declared))
            cubes[name] = replace(cube, dataset=volume, targets=targets, attributes=plain_values(node.attributes))
        check_extents(f"{probe.path}", list(cubes.values()))
        return tuple(ZarrCube(name, cube, missing=hints.missing) for name, cube in cubes.items())


def _targets(root: ZarrNode, path: Path) -> dict[str, float]:
    """Return the targets in the manifest of a hierarchy that voxload converted; none of others.

    Raises UsageError when several samples share its volume, which would be converted as one.
    """
    found = only_member(path, root.attributes.get(_MANIFEST)).get("targets")
    return {name: float(value) for name, value in found.items()} if isinstance(found, Mapping) else {}
