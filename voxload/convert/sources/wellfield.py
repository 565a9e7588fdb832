"""WellField: one field of a file of The Well, and where its samples lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from voxload.convert.sources.hdf5facts import Hdf5Dataset
from voxload.errors import DataError, UsageError
from voxload.readers.axes import AxisOrder, resolve_axes

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
