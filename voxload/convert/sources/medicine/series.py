"""Series: the slices of one DICOM volume in the order of their places, once these are found to be those of a volume.

Nothing is guessed: a slice that is missing, there twice, or of another orientation, extent or type is an error that
names it. Source: DICOM PS3.3, C.7.6.2.1.1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.affine import Affine
from voxload.convert.sources.medicine.headers import Header, read_header
from voxload.convert.sources.medicine.slices import Slice
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError, UsageError

_TOLERANCE = 0.05
"""Voxels by which a slice may lie beside its place; see `voxload.convert.sources.medicine.images`."""
_TURN = 1e-4
"""By which directions, and distances in units of themselves, may differ: 512 pixels make a twentieth of one of it."""
_SQUARE = 1e-3
"""By which directions may be longer than one, or not at a right angle: texts of few digits."""
_LEAST = 1e-3
"""Edges of a pixel that slices must be apart; closer ones are two at one place."""


def is_dicom(probe: Probe) -> bool:
    """Tell whether a file has the signature of DICOM. Source: PS3.10, 7.1."""
    return probe.head[128:132] == b"DICM"


def gathered(first: Header) -> list[Slice]:
    """Return the slices of a header's series in its folder and those below, by name; hidden ones are left out.

    Raises
    ------
    UsageError
        When the folder itself holds slices of another series, too, or a slice is none of numbers.
    DataError
        When a file is damaged.
    """
    folder = first.path.parent
    found = [first]
    for path in _files(folder):
        header = None if path == first.path or not is_dicom(Probe(path)) else read_header(path)
        if header is None:
            continue
        if header.series == first.series or not header.series:
            found.append(header)
        elif path.parent == folder:
            raise UsageError(
                f"{folder}",
                found=f"slices of two series, such as {first.path.name} of {first.series!r} and {path.name} of "
                f"{header.series!r}",
                expected="one series a folder",
                remedy="sort them into a folder for each SeriesInstanceUID",
            )
    for header in found:
        if not header.series:
            raise header.wrong("series", found="nothing", expected="what tells one series from another")
    return [Slice.of(header) for header in sorted(found, key=lambda header: header.path)]


def _files(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (
            Path(here, name) for name in sorted(names) if not name.startswith(".") and Path(here, name).is_file()
        )


@dataclass(frozen=True, slots=True)
class Series:
    """One volume."""

    slices: tuple[Slice, ...]
    """In the order of their places along the normal of the planes, which is D."""
    affine: Affine
    """Where its voxels lie."""
    steps: tuple[float, float, float]
    """mm between slices, rows and columns."""

    @classmethod
    def of(cls, slices: Sequence[Slice]) -> Series:
        """Return the volume that slices make, given in any order.

        Raises
        ------
        DataError
            When they make none: one is missing or there twice, or they differ in what all slices of a volume share.
        UsageError
            When there is one slice only.
        """
        first = slices[0]
        if len(slices) == 1:
            raise UsageError(
                f"{first.path}", found="one slice of its series", expected="two or more, that make a volume"
            )
        across, down = _directions(first)
        for other in slices:
            _check_alike(first, other)
        normal = np.cross(across, down)
        along = np.array([one.position for one in slices]) @ normal
        order = np.argsort(along, kind="stable")
        found, along = [slices[place] for place in order], along[order]
        places = np.array([one.position for one in found])
        step = (places[-1] - places[0]) / (len(found) - 1)
        row, column = first.pixel_spacing
        steps = np.array([across * column, down * row, step])
        _check_apart(found, np.diff(along), least=_LEAST * min(row, column))
        _check_places(found, along, np.linalg.solve(steps.T, (places - places[0]).T).T)
        affine = Affine.of("left-posterior-superior", steps, places[0])
        if affine is None:
            raise DataError(f"{first.path}", found=f"ImagePositionPatient {first.position}", expected="a place")
        return cls(tuple(found), affine, (float(np.linalg.norm(step)), row, column))

    @property
    def is_scaled(self) -> bool:
        """Whether stored numbers of any slice stand for others; in some series each slice has a scale of its own."""
        return not all(one.scaling.is_identity for one in self.slices)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the voxels."""
        stored = self.slices[0].dtype
        return self.slices[0].scaling.dtype(stored) if self.is_scaled else stored.newbyteorder("=")


def _check_alike(first: Slice, other: Slice) -> None:
    """Refuse a slice that is not as the first in what is one for a volume."""
    for what, mine, theirs, is_same in (
        ("rows and columns", other.shape, first.shape, other.shape == first.shape),
        ("type", other.dtype.str, first.dtype.str, other.dtype == first.dtype),
        ("orientation", other.orientation, first.orientation, _is_near(other.orientation, first.orientation, 1.0)),
        (
            "pixel spacing",
            other.pixel_spacing,
            first.pixel_spacing,
            _is_near(other.pixel_spacing, first.pixel_spacing, min(first.pixel_spacing)),
        ),
        ("frame of reference", other.frame, first.frame, other.frame == first.frame),
    ):
        if not is_same:
            raise DataError(
                f"{other.path}",
                found=f"{what} {mine}",
                expected=f"{theirs}, as {first.path.name} of the same series has",
                remedy="put what makes no volume with the others into a folder of its own, or out of the way",
            )


def _is_near(one: Sequence[float], other: Sequence[float], unit: float) -> bool:
    return bool(np.abs(np.subtract(one, other)).max() <= _TURN * unit)


def _directions(piece: Slice) -> tuple[Any, Any]:
    """Return the directions of a slice's columns and rows, each of length one."""
    across, down = np.reshape(piece.orientation, (2, 3))
    lengths = np.linalg.norm([across, down], axis=1)
    if np.abs(lengths - 1).max() > _SQUARE or abs(across @ down) > _SQUARE:
        raise DataError(
            f"{piece.path}",
            found=f"ImageOrientationPatient {piece.orientation}",
            expected="two directions of length one at a right angle",
        )
    if min(piece.pixel_spacing) <= 0:
        raise DataError(f"{piece.path}", found=f"PixelSpacing {piece.pixel_spacing}", expected="more than 0 mm")
    return across / lengths[0], down / lengths[1]


def _check_apart(found: Sequence[Slice], gaps: Any, *, least: float) -> None:
    """Refuse two slices at one place."""
    twice = np.flatnonzero(gaps < least)
    if len(twice):
        one, other = found[int(twice[0])], found[int(twice[0]) + 1]
        raise DataError(
            f"{other.path}",
            found=f"{_said(other.position)}, the place of {one.path.name} in the same series",
            expected="one slice at each place",
            remedy="put each time, echo or b-value into a folder of its own, and copies out of the way",
        )


def _check_places(found: Sequence[Slice], along: Any, voxels: Any) -> None:
    """Refuse slices that are not at equal distances on one line; `voxels` are their places, (w, h, d)."""
    apart = np.abs(voxels - np.arange(len(found))[:, None] * [0, 0, 1])
    if apart.max() <= _TOLERANCE:
        return
    gaps = np.diff(along)
    usual = float(np.sort(gaps)[(len(gaps) - 1) // 2])  # one that is there, and not a mean of two
    worst = int(gaps.argmax() if gaps.max() - usual > _TOLERANCE * usual else gaps.argmin())
    if abs(gaps[worst] - usual) > _TOLERANCE * usual:
        one, other = found[worst], found[worst + 1]
        raise DataError(
            f"{one.path.parent}",
            found=f"a gap: {gaps[worst]:.6g} mm between {one.path.name} at {_said(one.position)} and {other.path.name} "
            f"at {_said(other.position)}",
            expected=f"{usual:.6g} mm, as between the others of the {len(found)} slices",
            remedy="copy the slices that are missing; slices at unequal distances make no volume: resample them first",
        )
    place = int(apart.max(axis=1).argmax())
    raise DataError(
        f"{found[place].path}",
        found=f"{_said(found[place].position)}, {apart[place].max():.3g} voxels beside the line of the others",
        expected="slices at equal distances on one line",
        remedy="put what makes no volume with the others into a folder of its own",
    )


def _said(position: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in position) + ")"
