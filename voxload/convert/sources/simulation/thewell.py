"""TheWell: trajectories of simulations in the HDF5 layout of The Well; every step of a trajectory is a sample.

``t0_fields``, ``t1_fields`` and ``t2_fields`` hold scalars, vectors and tensors as (trajectories, steps, x, y, z,
components); components become channels, those of a tensor in the order xx, xy, xz, yx, and so on. A field that is
constant in time or the same for all trajectories lacks that axis, and belongs to each sample. Source: The Well,
docs/data_format.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.convert.sources.arrays.hdf5cube import Hdf5Slab, check_slabs, describe_dataset
from voxload.convert.sources.arrays.hdf5targets import read_numbers
from voxload.convert.sources.axes import check_layout_names
from voxload.convert.sources.hdf5contents import Hdf5Dataset, Hdf5Tree
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.names import check_extents, chosen_datasets, part_name
from voxload.convert.sources.probe import Probe, hdf5_tree
from voxload.convert.sources.protocol import RawCube, Source, plain_values
from voxload.errors import DataError, UsageError
from voxload.readers.axes import AxisOrder, resolve_axes
from voxload.text import listed

_DIMENSIONS = 3
_COMPONENTS = ({()}, {(_DIMENSIONS,)}, {(_DIMENSIONS, _DIMENSIONS), (_DIMENSIONS**2,)})
"""Extents after those in space, by tensor order: the specification has one axis of D^2 for tensors, files have two."""


@dataclass(frozen=True, slots=True)
class WellField:
    """A scalar, vector or tensor field."""

    path: Path
    """The file."""
    name: str
    """The dataset, such as ``t1_fields/velocity``."""
    stored: Hdf5Dataset
    """What HDF5 says of it."""

    @property
    def subject(self) -> str:
        """File and field, for messages."""
        return f"{self.path}, field {self.name!r}"

    @property
    def rank(self) -> int:
        """Tensor order: 0, 1 or 2."""
        return int(self.name[1])

    def order(self, axes: str | None) -> AxisOrder:
        """Return the axes of the field at one time; components are channels and always last.

        `axes` are those in space where the caller knows better, with or without the channels.
        """
        if axes is None:
            lead = "".join(axis for axis, does in zip("NT", self.varying, strict=True) if does)
            layout = f"{lead}DHW{'C' * self.rank}"
            check_layout_names(self.subject, self.stored.shape, layout, namings=self.stored.namings, is_xyz=True)
        spatial = (axes or "DHW").upper().removesuffix("C")
        resolve_axes(self.subject, ndim=_DIMENSIONS, given=spatial, declared=None)
        return AxisOrder(f"{spatial}C" if self.rank else spatial)

    @property
    def varying(self) -> tuple[bool, bool]:
        """Whether there is one field a trajectory, and one a step; an axis that does not vary is not stored."""
        found = [self.stored.attributes.get(name) for name in ("sample_varying", "time_varying")]
        if not all(isinstance(value, bool) for value in found):
            raise DataError(
                self.subject, found=f"sample_varying, time_varying {found}", expected="true or false for both"
            )
        return bool(found[0]), bool(found[1])

    @property
    def counts(self) -> tuple[int | None, int | None]:
        """Trajectories and steps of the field; None for those that it does not vary with.

        Raises
        ------
        DataError
            When its extents are not those that its attributes announce.
        UsageError
            When it is constant along an axis of space, so that it is no cube.
        """
        if not all(self.stored.attributes.get("dim_varying", [True])):
            raise UsageError(
                self.subject,
                found="a field that is constant along an axis and stored without it",
                expected="three axes in space",
                remedy="name the other fields with --dataset",
            )
        varying = self.varying
        leading = sum(varying)
        axes = leading + _DIMENSIONS
        if len(self.stored.shape) < axes or self.stored.shape[axes:] not in _COMPONENTS[self.rank]:
            raise DataError(
                self.subject,
                found=f"shape {self.stored.shape}",
                expected=f"{leading} axes for trajectories and steps, {_DIMENSIONS} in space, "
                f"and those of {_DIMENSIONS**self.rank} components",
            )
        extents = iter(self.stored.shape)
        first, second = (next(extents) if does else None for does in varying)
        return first, second

    def fixed(self, trajectory: int, step: int) -> dict[int, int]:
        """Return the axes of the dataset that a sample fixes, and at which index."""
        index = [number for number, does in zip((trajectory, step), self.varying, strict=True) if does]
        return dict(enumerate(index))


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
        wanted = chosen_datasets(f"{probe.path}", _names(probe, tree), hints)
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
