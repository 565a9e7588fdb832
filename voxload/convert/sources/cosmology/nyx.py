"""Snapshots of Nyx: the HDF5 files of gimlet, the headerless files that NERSC serves.

NyxHdf5: fields of a Nyx simulation on its grid, as Nyx and gimlet write them for the Lyman-alpha forest. The root
attribute ``format`` is ``nyx-lyaf``. Each dataset of ``native_fields`` and ``derived_fields`` is a field (nx, ny,
nz), float32; the groups ``domain`` and ``universe`` say the size in Mpc/h and the cosmology. Source: the Nyx
converter from plotfiles to this layout, and gimlet, which reads it.

NyxRaw: the headerless snapshots of Nyx that NERSC serves. ``<N>/z<redshift>_<field>_<precision>.raw``, one (N, N, N)
array in Fortran order. Source: https://portal.nersc.gov/cfs/nyx/RT/README.md, which does not list the words for the
precision.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from voxload.convert.sources.arrays.hdf5cube import Hdf5Cube, describe_dataset, layout_axes
from voxload.convert.sources.arrays.headerless import exact_cube_root, has_signature, headerless_file
from voxload.convert.sources.binary.flat import FlatSource, describe_flat
from voxload.convert.sources.hdf5contents import Hdf5Tree
from voxload.convert.sources.hints import Headerless, Hints, MemoryOrder
from voxload.convert.sources.names import check_extents, chosen_datasets
from voxload.convert.sources.probe import Probe, hdf5_tree
from voxload.convert.sources.protocol import Source, plain_values
from voxload.errors import DataError, UsageError
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
        wanted = chosen_datasets(f"{probe.path}", fields, hints)
        said = _said(tree)
        cubes = {}
        for name, volume in wanted.items():
            stored = tree.datasets[name]
            order = layout_axes(f"{probe.path}, dataset {name!r}", stored, "DHW", given=hints.axes, is_xyz=True)
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


_NAME = re.compile(r"z(?P<redshift>\d+(?:\.\d+)?)_(?P<field>.+)_(?P<precision>[A-Za-z0-9]+)\.raw")
_SINGLE = ("f4", "f32", "float32", "fp32", "32", "32bit", "single", "sp", "float")
_DOUBLE = ("f8", "f64", "float64", "fp64", "64", "64bit", "double", "dp")
_DTYPES = {**dict.fromkeys(_SINGLE, "<f4"), **dict.fromkeys(_DOUBLE, "<f8")}


class NyxRaw:
    """Snapshots of Nyx; all fields of one redshift are volumes of one sample."""

    name = "Nyx raw"
    is_generic = False
    is_headerless = True
    """Whether the caller may say more of a file with --shape, --dtype and --order."""

    def claims(self, probe: Probe) -> bool:
        """Tell whether ``z<redshift>_<field>_<precision>.raw`` has the size of a cube, or lies in a folder ``<N>``.

        In such a folder a wrong size is a broken file, and no other kind.
        """
        match = _NAME.fullmatch(probe.path.name)
        if match is None or has_signature(probe):
            return False
        is_cube = any(exact_cube_root(probe.size // size) for size in (4, 8) if not probe.size % size)
        return is_cube or probe.path.parent.name.isdigit()

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube.

        Raises
        ------
        UsageError
            When the name's precision is no known word.
        DataError
            When the size is no cube, or not that of the folder.
        """
        match = _NAME.fullmatch(probe.path.name)
        if match is None:
            raise UsageError(f"{probe.path}", found="another name", expected="z<redshift>_<field>_<precision>.raw")
        file = headerless_file(probe.path, hints.headerless or _facts(probe, match["precision"]), hints)
        cube = replace(
            describe_flat(file),
            dataset=match["field"],
            sample=f"z{match['redshift']}",
            attributes={"redshift": float(match["redshift"])},
        )
        return (FlatSource(cube, file),)


def _facts(probe: Probe, precision: str) -> Headerless:
    dtype = _DTYPES.get(precision.lower())
    if dtype is None:
        raise UsageError(
            f"{probe.path}",
            found=f"precision {precision!r}",
            expected=f"one of {', '.join(_DTYPES)}",
            remedy="say what it is with --shape, --dtype and --order F",
        )
    count, rest = divmod(probe.size, np.dtype(dtype).itemsize)
    extent, folder = None if rest else exact_cube_root(count), probe.path.parent.name
    if extent is None or (folder.isdigit() and int(folder) != extent):
        expected = f"{folder} voxels a side, as the folder says" if folder.isdigit() else "those of a cube"
        raise DataError(
            f"{probe.path}",
            found=f"{probe.size} bytes of {dtype}",
            expected=expected,
            remedy="the file is truncated, or its name is wrong",
        )
    return Headerless((extent,) * 3, dtype, MemoryOrder.F)
