"""Source and RawFormat: the contracts that every raw format keeps, with the RawCube that they describe.

A format knows a file by its content and lists the raw cubes in it. A source is one of these cubes: it describes it and
reads sub-boxes of it; nothing here ever holds a whole cube.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from voxload.convert.sources.affine import Affine
from voxload.convert.sources.coordinates import Coordinates
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder
from voxload.readers.protocol import Missing, Volume

ReadInto = Callable[[Box, Volume], None]
"""Reads a spatial box, inside the cube, into an array of shape ``(C, *box.shape)`` and the cube's dtype."""


@dataclass(frozen=True, slots=True)
class RawCube:
    """What is known of a raw cube without reading a voxel."""

    path: Path
    """The file."""
    dataset: str
    """Name the volume gets where it is converted to."""
    shape: tuple[int, ...]
    """Extents in the order of the bytes in the file, slowest axis first."""
    order: AxisOrder
    """Axes in the same order."""
    dtype: np.dtype[Any]
    """Type of the voxels once read: the stored type in this machine's byte order."""
    targets: Mapping[str, float] = field(default_factory=dict)
    """Target name to value, as the file itself says."""
    scratch_bytes: int = 0
    """Memory that reading takes beside the array it reads into, such as a decompressed chunk."""
    table_bytes: int = 0
    """Memory that knowing where its chunks lie takes, which may be more than a chunk where these are small."""
    turned_bytes: int = 0
    """Memory that reading takes beside the array for each voxel of a box, all of its channels, because a part of what
    is read lies in another order on disk."""
    sample: str = ""
    """Name of the sample below the file's folder, where it is not the file's own without suffix; ``.`` for the
    folder's. Volumes of one sample in several files have one name and a dataset each."""
    part: str = ""
    """Which of several samples in the file this is, such as ``0007``; empty where the file is one sample."""
    is_sequential: bool = False
    """Whether voxels can only be read in the order of the bytes, as from a compressed stream: boxes are then asked for
    in that order, each of whole planes of the slowest axis, and a reading that skips some still decodes them."""
    companions: tuple[Path, ...] = ()
    """Further files that the voxels come from, such as the data file of a header."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """What else the file says of the cube, in plain JSON values: units, spacing, box size, redshift."""
    affine: Affine | None = None
    """Where its voxels lie, by which the volumes of a sample are compared; None where the file does not say."""
    spacing: tuple[float, float, float] | None = None
    """Distance of neighbouring voxels along D, H and W in mm; None where it is not known."""
    coordinates: Coordinates = field(default_factory=dict)
    """What the file has along D, H and W, such as latitudes."""
    coarser: tuple[str, ...] = ()
    """Names of the arrays in the file that are the same volume at coarser resolutions, and no cubes of their own."""

    def __post_init__(self) -> None:
        if self.dtype.kind not in "biuf" or self.dtype.itemsize > 8:
            raise UsageError(
                f"{self.path}", found=f"dtype {self.dtype}", expected="integers or floats of 1 to 8 bytes a voxel"
            )
        if min(self.shape) < 1:
            raise DataError(f"{self.path}", found=f"shape {self.shape}", expected="extents of 1 or more")

    @property
    def volume_shape(self) -> tuple[int, int, int, int]:
        """Extents as (C, D, H, W)."""
        return self.order.to_volume(self.shape, 1)

    @property
    def patient_affine(self) -> tuple[float, ...] | None:
        """The 4 x 4 matrix from indices (d, h, w, 1) to mm of the patient (RAS), row by row; None where not known."""
        return None if self.affine is None else self.affine.from_voxels(self.spatial_order)

    @property
    def spatial_order(self) -> tuple[int, int, int]:
        """Spatial axes (0 for D, 1 for H, 2 for W) in the order of the bytes, slowest first."""
        first, second, third = ("DHW".index(axis) for axis in self.order.axes if axis != "C")
        return first, second, third


class Source(Protocol):
    """One raw cube on disk.

    Rules: ``describe`` costs no reading of voxels. ``open`` gives a function that fills every voxel of the array
    it is given or raises; it reads fastest when that array lies in memory as the cube lies in the file. What
    is broken raises DataError, a refusing storage StorageError, and both name the file. One thread at a time.
    """

    def describe(self) -> RawCube:
        """Return what is known of the cube."""
        ...

    def open(self) -> AbstractContextManager[ReadInto]:
        """Open the file for reading and close it at the end of the block."""
        ...


class RawFormat(Protocol):
    """One raw format; instances have no state and are safe to share.

    Rules: ``claims`` looks at the data and never at the name alone; it raises only what is broken, and False is no
    error. ``sources`` opens the file as often as it likes and reads no voxel; what it cannot decide, such as the order
    of axes that nothing names, is a UsageError that says what was found and which option decides.
    """

    name: str
    """The format in words, as ``docs/reference/formats.md`` lists it."""
    is_generic: bool
    """Whether a format that knows the file more closely comes first, as of any HDF5 file."""

    def claims(self, probe: Probe) -> bool:
        """Tell whether a file is of this format."""
        ...

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the raw cubes of a file that `claims` knows, in a fixed order; none where it holds none."""
        ...


def volume_view(order: AxisOrder, stored: Volume) -> Volume:
    """Return a (C, D, H, W) view of an array whose axes are in a file's order; no voxel moves.

    >>> volume_view(AxisOrder("DHWC"), np.zeros((5, 6, 7, 4))).shape
    (4, 5, 6, 7)
    """
    axes = [order.axes.index(axis) for axis in "CDHW" if axis in order.axes]
    turned = stored.transpose(axes)
    return turned if order.has_channels else turned[np.newaxis]


_ATTRIBUTE = "voxels_never_written"
"""What the manifest calls it; a later run with another wish then converts the cube again."""


def filled(cube: RawCube, missing: Missing) -> RawCube:
    """Return a cube with what is done about voxels that were never written among its attributes."""
    if missing is Missing.ERROR:
        return cube
    return replace(cube, attributes={**cube.attributes, _ATTRIBUTE: str(missing)})


_BOOKKEEPING = frozenset({"CLASS", "NAME", "DIMENSION_LIST", "DIMENSION_LABELS", "REFERENCE_LIST"})
"""Attributes by which HDF5 ties axes to their scales (HDF5 Dimension Scales Specification)."""


def plain_values(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that are numbers, texts, or lists and mappings of them; the others are left out.

    >>> plain_values({"units": "km/s", "broken": float("nan"), "CLASS": "DIMENSION_SCALE"})
    {'units': 'km/s'}
    """
    return {name: value for name, value in attributes.items() if name not in _BOOKKEEPING and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_plain(item) for name, item in value.items())
    # bool, int, float and str themselves: numpy's scalars are no JSON values.
    return type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))
