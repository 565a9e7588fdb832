"""NpyFormat: .npy files, version 1 to 3, in C or Fortran order."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from voxload.readers.axes import resolve_axes
from voxload.readers.faults import translated
from voxload.readers.memorymap import MemoryMapReader
from voxload.readers.protocol import Location, Missing, Vector, refuse_vector

_MAGIC = b"\x93NUMPY"


class NpyFormat:
    """One array a file, mapped into memory; pickled objects are refused."""

    name = "npy"

    def claims(self, path: str) -> bool:
        """Tell whether the file starts with numpy's magic string."""
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC

    def datasets(self, path: str) -> tuple[str, ...]:  # noqa: ARG002 - every npy file holds one array
        """Return one unnamed array."""
        return ("",)

    def open(self, location: Location, missing: Missing) -> MemoryMapReader:  # noqa: ARG002 - all voxels are there
        """Map the file; raises DataError when it is shorter than its header says."""
        with translated(str(location)):
            array = np.load(location.path, mmap_mode="r", allow_pickle=False)
            order = resolve_axes(str(location), ndim=array.ndim, given=location.axes, declared=None)
        return MemoryMapReader(location, array, order=order, format_name=self.name)

    def read_vector(self, path: str, name: str) -> Vector:
        """Refuse: the file holds one volume and nothing else."""
        return refuse_vector(path, name)
