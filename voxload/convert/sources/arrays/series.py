"""Series: the samples (N) and time steps (T) that an array holds by the names of its axes; a cube is made of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Self

from voxload.convert.sources.names import part_name
from voxload.convert.sources.protocol import RawCube
from voxload.errors import UsageError
from voxload.readers.axes import AxisOrder

_AXES = "NT"
_WORDS = {"N": "array_sample", "T": "array_step"}
Index = tuple[int, int]
"""A sample and one of its time steps."""


@dataclass(frozen=True, slots=True)
class Series:
    """What the axes of an array make of it; pure."""

    order: AxisOrder
    """Axes as stored."""
    counts: Index
    """Samples and time steps, 1 of an axis that is not there."""

    @classmethod
    def of(cls, order: AxisOrder, shape: tuple[int, ...]) -> Self:
        """Return that of an array with these axes."""
        samples, steps, _ = order.lead(shape)
        return cls(order, (samples, steps))

    @property
    def cube(self) -> AxisOrder:
        """Axes of each cube."""
        return AxisOrder("".join(axis for axis in self.order.axes if axis not in _AXES))

    @property
    def is_one(self) -> bool:
        """Whether the array is one cube."""
        return prod(self.counts) == 1

    def fixed(self, index: Index) -> dict[int, int]:
        """Return the axes of the array that a cube fixes, and at which index."""
        by_axis = dict(zip(_AXES, index, strict=True))
        return {place: by_axis[axis] for place, axis in enumerate(self.order.axes) if axis in by_axis}

    def part_of(self, cube: RawCube, index: Index, part: str) -> RawCube:
        """Return the cube of one sample and step, which says where it lies in the array, so that its manifest does.

        A later run that takes the axes for others then converts it again, though the cubes look alike.
        """
        if not self.fixed(index):
            return cube
        told = {"array_axes": self.order.axes}
        places = {_WORDS[axis]: index[_AXES.index(axis)] for axis in _AXES if axis in self.order.axes}
        return replace(cube, part=part, attributes={**cube.attributes, **told, **places})

    def channels(self, index: Index, count: int) -> tuple[int, int]:
        """Return the range of a cube's `count` channels among those of all samples and steps, as readers have them."""
        first = (index[0] * self.counts[1] + index[1]) * count
        return first, first + count


def parts(subject: str, series: Mapping[str, Series], *, has_targets: bool) -> Iterator[tuple[Index, str]]:
    """Yield sample and step of each cube that volumes of one file have together, with the name of this part.

    A step's name is no plain number, by which a table of targets could take it for a sample of its own.

    Raises
    ------
    UsageError
        When volumes differ in their samples or steps, or several samples have one vector of targets.
    """
    counts = {name: one.counts for name, one in series.items()}
    found = set(counts.values())
    if len(found) > 1:
        shown = ", ".join(f"{name} {samples} and {steps}" for name, (samples, steps) in list(counts.items())[:10])
        raise UsageError(
            subject,
            found=f"volumes of different numbers of samples and time steps, {shown}",
            expected="as many of each",
            remedy="name those that belong together with --dataset",
        )
    samples, steps = next(iter(found), (1, 1))
    if samples > 1 and has_targets:
        raise UsageError(
            subject,
            found=f"one vector of targets for {samples} samples (axis N)",
            expected="targets for each sample",
            remedy="write the targets into a table for --targets, and the volumes into a file without them",
        )
    for index in product(range(samples), range(steps)):
        yield index, part_name(index[:1], (samples,)) if steps == 1 else part_name(index, (samples, steps))
