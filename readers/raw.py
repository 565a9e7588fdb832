"""RawFormat: headerless binary, whose shape and type its location must say."""

from __future__ import annotations

from math import prod
from pathlib import Path

from voxload.errors import DataError, UsageError
from voxload.readers.arrayfile import ArrayFileReader, ArrayLayout
from voxload.readers.axes import resolve_axes
from voxload.readers.faults import translated
from voxload.readers.foreign import foreign_error
from voxload.readers.hdf5.drivers import member_error
from voxload.readers.protocol import Location, Missing, Vector, parse_dtype, refuse_vector


class RawFormat:
    """One array a file.

    The location's shape and axes are in C order, slowest first. A file in Fortran order, fastest first, is the
    same file with shape and axes turned round: (nx, ny, nz) with x fastest is shape (nz, ny, nx).
    """

    name = "raw"

    def claims(self, path: str) -> bool:
        """Tell whether there is a file at all: anything can be headerless binary."""
        return Path(path).is_file()

    def datasets(self, path: str) -> tuple[str, ...]:  # noqa: ARG002 - every raw file holds one array
        """Return one unnamed array."""
        return ("",)

    def open(self, location: Location, missing: Missing) -> ArrayFileReader:  # noqa: ARG002 - all voxels are there
        """Open the file; raises DataError unless its size is exactly what shape and dtype need.

        Without these it raises UsageError, which says what the file is where its format is known and not read.
        """
        if location.shape is None or location.dtype is None:
            known = foreign_error(location.path) or member_error(location.path)
            if known is not None:
                raise known
            raise UsageError(
                str(location),
                found="no known header",
                expected="HDF5, Zarr or npy, or a shape and a dtype",
                remedy="check that it is the right file, or say shape and dtype of headerless data",
            )
        dtype = parse_dtype(location, location.dtype)
        if dtype.hasobject or min(location.shape, default=1) < 1:
            raise UsageError(
                str(location),
                found=f"{dtype} {tuple(location.shape)}",
                expected="a type of numbers and extents of 1 or more",
            )
        with translated(str(location)):
            expected, found = prod(location.shape) * dtype.itemsize, Path(location.path).stat().st_size
            if expected != found:
                raise DataError(
                    str(location),
                    found=f"{found} bytes",
                    expected=f"{expected} for {dtype} {tuple(location.shape)}",
                    remedy="the file is truncated, has a header, or shape or dtype are wrong",
                )
            layout = ArrayLayout(tuple(location.shape), dtype)
            order = resolve_axes(str(location), ndim=len(layout.shape), given=location.axes, declared=None)
        return ArrayFileReader(location, layout, order=order, format_name=self.name)

    def read_vector(self, path: str, name: str) -> Vector:
        """Refuse: the file holds one volume and nothing else."""
        return refuse_vector(path, name)
