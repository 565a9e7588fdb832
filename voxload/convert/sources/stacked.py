"""StackedSource: several cubes of one shape and type as the channels of one.

Each box is read from all of them, one after the other, each into its own channels of the array. So whatever comes
behind a source sees one cube, and what is read at once is bounded by its tiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Self

from voxload.convert.sources.protocol import RawCube, ReadInto, Source
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.protocol import Volume


@dataclass(frozen=True, slots=True)
class StackedSource:
    """A cube whose channels are those of other cubes."""

    cube: RawCube
    """What is known of it."""
    sources: tuple[Source, ...]
    """The other cubes, in the order of the channels."""

    @classmethod
    def of(cls, name: str, variables: Mapping[str, Source], *, subject: str) -> Self:
        """Return the cube of some variables, in their order, each with all of its channels.

        In memory its channels lie one behind the other; a cube that lies so on disk is read without a copy.

        Parameters
        ----------
        name
            Name of the cube as a volume.
        variables
            Name to cube, one at least.
        subject
            What error messages are about.

        Raises
        ------
        UsageError
            When they differ in extents (D, H, W) or type, naming the first that does; when two of them can only be
            read in an order that is not the other's.
        """
        sources = tuple(variables.values())
        cubes = [source.describe() for source in sources]
        _check_alike(subject, dict(zip(variables, cubes, strict=True)))
        if len(cubes) == 1:
            return cls(replace(cubes[0], dataset=name), sources)
        first = next((cube for cube in cubes if cube.is_sequential), cubes[0])
        order = AxisOrder(f"C{_spatial(first)}")
        channels = sum(cube.volume_shape[0] for cube in cubes)
        # An affine is of the axes of its own file; these of the stack are those of `first`.
        placed = next((one for one in cubes if one.affine is not None and _spatial(one) == _spatial(first)), None)
        measured = next((one for one in (placed, *cubes) if one is not None and one.spacing is not None), None)
        files = dict.fromkeys(path for cube in cubes for path in (cube.path, *cube.companions))
        cube = RawCube(
            cubes[0].path,
            name,
            shape=order.to_stored((channels, *first.volume_shape[1:])),
            order=order,
            dtype=first.dtype,
            targets={target: value for one in cubes for target, value in one.targets.items()},
            # All of them are open at once.
            scratch_bytes=sum(one.scratch_bytes for one in cubes),
            table_bytes=sum(one.table_bytes for one in cubes),
            turned_bytes=max(_turned_bytes(one, _spatial(first)) for one in cubes),
            sample=cubes[0].sample,
            part=cubes[0].part,
            is_sequential=first.is_sequential,
            companions=tuple(path for path in files if path != cubes[0].path),
            affine=None if placed is None else placed.affine,
            spacing=None if measured is None else measured.spacing,
            coordinates=_common(cubes),
        )
        return cls(cube, sources)

    def describe(self) -> RawCube:
        """Return what is known of the cube."""
        return self.cube

    @contextmanager
    def open(self) -> Iterator[ReadInto]:
        """Open all files for reading and close them at the end of the block."""
        with ExitStack() as files:
            readings = [files.enter_context(source.open()) for source in self.sources]
            if len(readings) == 1:
                yield readings[0]
                return
            ends = list(itertools.accumulate(source.describe().volume_shape[0] for source in self.sources))
            places = [slice(first, last) for first, last in zip([0, *ends], ends, strict=False)]

            def read_into(box: Box, out: Volume) -> None:
                for read, channels in zip(readings, places, strict=True):
                    read(box, out[channels])

            yield read_into


def _spatial(cube: RawCube) -> str:
    """Return the spatial axes in the order of the bytes."""
    return cube.order.axes.replace("C", "")


def _turned_bytes(cube: RawCube, spatial: str) -> int:
    """Return the bytes a voxel that are read first and turned then, none where they lie on disk as in the array."""
    channels = cube.volume_shape[0]
    if _spatial(cube) == spatial and (channels == 1 or cube.order.axes[0] == "C"):
        return 0
    return channels * cube.dtype.itemsize


def _common(cubes: Sequence[RawCube]) -> dict[str, tuple[float, ...]]:
    """Return the coordinates that all cubes have which have any along an axis; of a staggered grid there are none."""
    found = {axis: {cube.coordinates[axis] for cube in cubes if axis in cube.coordinates} for axis in "DHW"}
    return {axis: next(iter(values)) for axis, values in found.items() if len(values) == 1}


def _check_alike(subject: str, cubes: Mapping[str, RawCube]) -> None:
    """Refuse variables that are no channels of one volume."""
    _check_equal(
        subject,
        cubes,
        lambda cube: "extents (D, H, W) = ({}, {}, {})".format(*cube.volume_shape[1:]),
        remedy="leave it out of --stack, resample it, or convert it from a folder of its own",
    )
    _check_equal(
        subject,
        cubes,
        lambda cube: f"type {cube.dtype}",
        remedy="leave it out of --stack, or write it with the type of the others",
    )
    _check_equal(
        subject,
        {name: cube for name, cube in cubes.items() if cube.is_sequential},
        lambda cube: f"a compressed stream of planes across {'DHW'[cube.spatial_order[0]]}",
        remedy="decompress it first, or leave it out of --stack: streams are read in their own order only",
    )


def _check_equal(subject: str, cubes: Mapping[str, RawCube], what: Callable[[RawCube], str], *, remedy: str) -> None:
    """Refuse the first variable of which `what` is another text than of most of them."""
    said = {name: what(cube) for name, cube in cubes.items()}
    texts = list(said.values())
    usual = max(texts, key=texts.count, default="")
    odd = next((name for name, text in said.items() if text != usual), None)
    if odd is not None:
        other = next(name for name, text in said.items() if text == usual)
        raise UsageError(
            subject,
            found=f"variable {odd!r} ({cubes[odd].path}) with {said[odd]}",
            expected=f"{usual}, as {other!r} ({cubes[other].path}) has",
            remedy=remedy,
        )
