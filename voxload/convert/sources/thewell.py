"""TheWell: trajectories of simulations in the HDF5 layout of The Well; every step of a trajectory is a sample.

``t0_fields``, ``t1_fields`` and ``t2_fields`` hold scalars, vectors and tensors as (trajectories, steps, x, y, z,
components); components become channels, those of a tensor in the order xx, xy, xz, yx, and so on. A field that is
constant in time or the same for all trajectories lacks that axis, and belongs to each sample. Source: The Well,
docs/data_format.md.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.convert.sources.hdf5cube import describe_dataset
from voxload.convert.sources.hdf5facts import Hdf5Tree
from voxload.convert.sources.hdf5slab import Hdf5Slab, check_slabs
from voxload.convert.sources.hdf5targets import read_numbers
from voxload.convert.sources.hdf5tree import hdf5_tree
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.partnames import part_name
from voxload.convert.sources.plainvalues import plain_values
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawCube, Source
from voxload.convert.sources.volumenames import check_extents, chosen
from voxload.convert.sources.wellfield import WellField
from voxload.errors import DataError, UsageError
from voxload.text import listed

_DIMENSIONS = 3
_TIME = "dimensions/time"
_GROUPS = ("t0_fields", "t1_fields", "t2_fields")
_SAID = ("dataset_name", "grid_type")
_BOUNDARIES = "boundary_conditions/"


class TheWell:
    """Files of three-dimensional simulations."""

    name = "The Well"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an HDF5 file has ``n_spatial_dims``, ``n_trajectories`` and one of ``t<rank>_fields``."""
        tree = probe.hdf5
        if tree is None or not {"n_spatial_dims", "n_trajectories"} <= set(tree.attributes):
            return False
        return bool(set(_GROUPS) & set(tree.groups))

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the samples, trajectory by trajectory and step by step, with a volume a field.

        Raises
        ------
        UsageError
            When the simulation is not three-dimensional or a field is no cube.
        DataError
            When fields are missing, or differ in their numbers of trajectories or steps.
        """
        tree = hdf5_tree(probe)
        if tree.attributes["n_spatial_dims"] != _DIMENSIONS:
            raise UsageError(
                f"{probe.path}",
                found=f"a simulation of {tree.attributes['n_spatial_dims']} dimensions",
                expected=f"one of {_DIMENSIONS}",
            )
        wanted = chosen(f"{probe.path}", _names(probe, tree), hints)
        fields = [WellField(probe.path, name, tree.datasets[name]) for name in wanted]
        counts = _counts(probe, tree, fields)
        cubes = [replace(_describe(field, hints), dataset=wanted[field.name]) for field in fields]
        check_extents(f"{probe.path}", cubes)
        said, times = _said(tree), _times(probe, tree, counts)
        found: list[Source] = []
        for index in product(*map(range, counts)):
            part, now = part_name(index, counts), {"time": float(times[index])} if times is not None else {}
            for field, cube in zip(fields, cubes, strict=True):
                attributes = {**_own(field), **said, **now}
                described = replace(cube, part=part, attributes=attributes)
                found.append(Hdf5Slab(field.name, described, field.fixed(*index), missing=hints.missing))
        return tuple(found)


def _all_names(tree: Hdf5Tree) -> list[str]:
    return sorted(name for name in tree.datasets if name.rpartition("/")[0] in _GROUPS)


def _names(probe: Probe, tree: Hdf5Tree) -> list[str]:
    """Return all fields; refuses a file that lacks some that it lists."""
    names = sorted(name for name in tree.datasets if name.rpartition("/")[0] in _GROUPS)
    announced = {f"{group}/{name}" for group in _GROUPS for name in tree.groups.get(group, {}).get("field_names", [])}
    absent = sorted(announced - set(names))
    if absent or not names:
        expected = f"{listed(absent)} too, which it lists" if absent else "one at least"
        raise DataError(f"{probe.path}", found=f"fields {listed(names)}", expected=expected)
    return names


def _counts(probe: Probe, tree: Hdf5Tree, fields: list[WellField]) -> tuple[int, int]:
    """Return the trajectories and steps of a file, 1 where no field varies with them; refuses fields that differ."""
    counts = {field.name: field.counts for field in fields}
    time = tree.datasets.get(_TIME)
    announced = (tree.attributes["n_trajectories"], time.shape[-1] if time and time.shape else None)
    found = []
    for place, what in enumerate(("trajectories", "steps")):
        each = {name: count[place] for name, count in counts.items() if count[place] is not None}
        expected = announced[place] if announced[place] is not None else next(iter(each.values()), None)
        if any(count != expected for count in each.values()):
            raise DataError(f"{probe.path}", found=f"{what} {each}", expected=f"{expected} of each field")
        found.append(next(iter(each.values()), None) or 1)
    return found[0], found[1]


def _times(probe: Probe, tree: Hdf5Tree, counts: tuple[int, int]) -> npt.NDArray[np.float64] | None:
    """Return the time of each sample; None where the file says none."""
    time = tree.datasets.get(_TIME)
    if time is None or time.shape not in (counts, counts[1:]):
        return None
    return np.broadcast_to(read_numbers(probe.path, _TIME, ndim=len(time.shape)), counts)


def _describe(field: WellField, hints: Hints) -> RawCube:
    check_slabs(field.path, field.name)
    fixed = tuple(field.fixed(0, 0))
    return describe_dataset(field.path, field.name, field.stored, order=field.order(hints.axes), fixed=fixed)


def _own(field: WellField) -> dict[str, Any]:
    return {
        name: value for name, value in plain_values(field.stored.attributes).items() if not name.endswith("_varying")
    }


def _said(tree: Hdf5Tree) -> dict[str, Any]:
    """Return what the file says of all fields."""
    named = tree.attributes.get("simulation_parameters", [])
    parameters = {name: tree.attributes[name] for name in named if name in tree.attributes}
    boundaries = {
        name.removeprefix(_BOUNDARIES): values["bc_type"]
        for name, values in tree.groups.items()
        if name.startswith(_BOUNDARIES) and "bc_type" in values
    }
    found = {name: tree.attributes[name] for name in _SAID if name in tree.attributes}
    return plain_values({**found, "simulation_parameters": plain_values(parameters), "boundary_conditions": boundaries})
