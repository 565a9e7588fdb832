"""NyxHdf5: fields of a Nyx simulation on its grid, as Nyx and gimlet write them for the Lyman-alpha forest.

The root attribute ``format`` is ``nyx-lyaf``. Each dataset of ``native_fields`` and ``derived_fields`` is a field
(nx, ny, nz), float32; the groups ``domain`` and ``universe`` say the size in Mpc/h and the cosmology. Source: the Nyx
converter from plotfiles to this layout, and gimlet, which reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from voxload.convert.sources.cubeaxes import cube_axes
from voxload.convert.sources.hdf5cube import Hdf5Cube, describe_dataset
from voxload.convert.sources.hdf5facts import Hdf5Tree
from voxload.convert.sources.hdf5tree import hdf5_tree
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.plainvalues import plain_values
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.volumenames import check_extents, chosen
from voxload.errors import DataError
from voxload.text import listed

_FORMAT = "nyx-lyaf"
_GROUPS = ("native_fields", "derived_fields")
_UNIVERSE = ("redshift", "hubble", "omega_b", "omega_m", "omega_l")


class NyxHdf5:
    """Snapshots of Nyx, of which every field is a volume."""

    name = "Nyx HDF5 (gimlet)"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether the root attribute ``format`` of an HDF5 file is ``nyx-lyaf``."""
        found = probe.hdf5.attributes.get("format") if probe.hdf5 else None
        return isinstance(found, str) and found.strip("\0 ") == _FORMAT

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the fields, in the order of their names; raises DataError when there are none."""
        tree = hdf5_tree(probe)
        fields = sorted(name for name, item in tree.datasets.items() if _is_field(name, item.shape))
        if not fields:
            raise DataError(
                f"{probe.path}",
                found=f"a Nyx file with {listed(tree.datasets)}",
                expected=f"fields of three axes in {' or '.join(_GROUPS)}",
            )
        wanted = chosen(f"{probe.path}", fields, hints)
        said = _said(tree)
        cubes = {}
        for name, volume in wanted.items():
            stored = tree.datasets[name]
            order = cube_axes(f"{probe.path}, dataset {name!r}", stored.shape, given=hints.axes)
            cube = describe_dataset(probe.path, name, stored, order=order)
            cubes[name] = replace(cube, dataset=volume, attributes={**plain_values(stored.attributes), **said})
        check_extents(f"{probe.path}", list(cubes.values()))
        return tuple(Hdf5Cube(name, cube, hints) for name, cube in cubes.items())


def _is_field(name: str, shape: tuple[int, ...]) -> bool:
    return name.rpartition("/")[0] in _GROUPS and len(shape) == 3


def _said(tree: Hdf5Tree) -> dict[str, Any]:
    """Return what the file says of all fields."""
    universe: Mapping[str, Any] = tree.groups.get("universe", {})
    found = {name: universe[name] for name in _UNIVERSE if name in universe}
    size = tree.groups.get("domain", {}).get("size")
    if size is not None:
        found |= {"box_size": size, "box_size_units": "Mpc/h"}
    return plain_values(found)
