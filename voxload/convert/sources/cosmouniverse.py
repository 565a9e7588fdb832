"""CosmoUniverseSource: the raw cosmoUniverse HDF5 layout of the CosmoFlow simulations.

One universe a file: ``full`` (N, N, N, redshifts) particle counts, int16, redshift last, and ``unitPar``, the
cosmological parameters scaled to [-1, 1]. Source: the CosmoFlow data sets of NERSC and their readers in LBANN
and MLPerf HPC, which assert these names and shapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path

import h5py
import numpy as np

from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawCube, ReadInto, Source
from voxload.errors import DataError, UsageError
from voxload.readers.axes import AxisOrder
from voxload.readers.faults import translated
from voxload.readers.hdf5.reader import Hdf5Reader
from voxload.readers.protocol import Location, Missing

DATASET = "full"
"""Name of the cube in the file, and where it is converted to."""
TARGETS = "unitPar"
"""Name of the parameters in the file."""

_NAMES = "namePar"
_DEFAULT_NAMES = ("omega_m", "sigma_8", "n_spec", "h_0")
_AXES = "DHWC"


class CosmoUniverse:
    """Raw universes of the CosmoFlow simulations."""

    name = "ExaLearn cosmoUniverse"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether the file holds a cube and its parameters under these names."""
        return probe.hdf5 is not None and {DATASET, TARGETS} <= set(probe.hdf5.datasets)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one universe."""
        return (CosmoUniverseSource(probe.path, hints.axes),)


class CosmoUniverseSource:
    """One universe.

    Parameters
    ----------
    path
        The file.
    axes
        Order of the axes of ``full``; None for (D, H, W, C) of a cube with equal D, H and W.

    Raises
    ------
    DataError
        When the file is truncated or damaged, or holds neither ``full`` nor ``unitPar``.
    UsageError
        When ``full`` is no cube with redshift last and the caller names no axes: a split file of another tool
        may have the same names and turned axes.
    """

    def __init__(self, path: Path, axes: str | None = None) -> None:
        with translated(f"{path}"), h5py.File(path, "r") as file:
            shape = _shape(file, path)
            targets = _targets(file, path)
        if axes is None and (len(shape) != 4 or len(set(shape[:3])) != 1):
            raise UsageError(
                f"{path}, dataset {DATASET!r}",
                found=f"shape {shape}",
                expected="(N, N, N, redshifts)",
                remedy="name its axes, such as --axes CDHW for channels first",
            )
        self._location = Location(str(path), dataset=DATASET, axes=axes or _AXES)
        reader = Hdf5Reader(self._location, Missing.ERROR)
        try:
            info = reader.describe()
        finally:
            reader.close()
        self._cube = RawCube(
            path,
            DATASET,
            shape=shape,
            order=AxisOrder(info.axes),
            dtype=info.native_dtype,
            targets=targets,
            scratch_bytes=2 * prod(info.chunks) * info.dtype.itemsize if info.chunks else 0,
        )

    def describe(self) -> RawCube:
        """Return what is known of the universe."""
        return self._cube

    @contextmanager
    def open(self) -> Iterator[ReadInto]:
        """Open the file for reading."""
        reader = Hdf5Reader(self._location, Missing.ERROR)
        try:
            yield reader.read_into
        finally:
            reader.close()


def _shape(file: h5py.File, path: Path) -> tuple[int, ...]:
    """Return the stored extents of the cube; the message lists what the file holds instead."""
    cube = file.get(DATASET)
    if not isinstance(cube, h5py.Dataset) or not isinstance(file.get(TARGETS), h5py.Dataset):
        raise DataError(
            f"{path}",
            found=f"HDF5 with {sorted(file)}",
            expected=f"a raw universe with {DATASET!r} and {TARGETS!r}",
            remedy="other HDF5 layouts are not converted",
        )
    return tuple(cube.shape)


def _targets(file: h5py.File, path: Path) -> dict[str, float]:
    """Return the parameters under the file's own names, else under the four that this data set has."""
    values = np.asarray(file[TARGETS][()])
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise DataError(
            f"{path}, dataset {TARGETS!r}", found=f"{values.dtype} {values.shape}", expected="one axis of numbers"
        )
    names = _names(file, len(values))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path}, dataset {_NAMES!r}", found=f"{twice[0]!r} twice", expected="each name once")
    return dict(zip(names, (float(value) for value in values), strict=True))


def _names(file: h5py.File, count: int) -> tuple[str, ...]:
    item = file.get(_NAMES)
    if isinstance(item, h5py.Dataset) and item.shape == (count,):
        texts = [text.decode() if isinstance(text, bytes) else str(text) for text in item[()]]
        return tuple(text.strip() for text in texts)
    return _DEFAULT_NAMES if count == len(_DEFAULT_NAMES) else tuple(f"target_{index}" for index in range(count))
