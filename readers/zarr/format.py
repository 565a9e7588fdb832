"""ZarrFormat: how a Zarr hierarchy is recognised, listed and opened."""

from __future__ import annotations

import os
from typing import Any

from voxload.readers.protocol import Location, Missing, Reader, Vector
from voxload.readers.store import is_url, open_store

_MARKS = ("zarr.json", ".zarray", ".zgroup")
"""Objects that make a folder a Zarr node: format 3, and arrays and groups of format 2."""


class ZarrFormat:
    """Zarr v2 and v3: a folder, or a URL that obstore or fsspec understands.

    zarr-python is imported when there is an array to open: every process that reads another format would wait for it.
    """

    name = "Zarr"

    def claims(self, path: str) -> bool:
        """Tell whether `path` holds a Zarr node."""
        if not is_url(path) and not os.path.isdir(path):  # noqa: PTH112 - a Path takes longer to make than to ask
            return False
        store = open_store(path)
        return any(store.size(mark) is not None for mark in _MARKS)

    def datasets(self, path: str) -> tuple[str, ...]:
        """Return the names of all arrays of three or four axes; one unnamed array where `path` is an array."""
        from voxload.readers.zarr.arrays import array_names  # noqa: PLC0415 - see the class

        return array_names(path)

    def holds(self, path: str, name: str) -> bool:
        """Tell whether there is such a volume, without a look at the others."""
        from voxload.readers.zarr.arrays import holds_array  # noqa: PLC0415 - see the class

        return holds_array(path, name)

    def is_crowded(self, path: str, most: int) -> bool:
        """Tell whether a hierarchy holds more than `most` volumes, by a look at so many."""
        from voxload.readers.zarr.arrays import is_crowded  # noqa: PLC0415 - see the class

        return is_crowded(path, most)

    def open(self, location: Location, missing: Missing) -> Reader:
        """Open one array; without a name, the only one there is."""
        from voxload.readers.zarr.arrays import open_array  # noqa: PLC0415 - see the class

        return open_array(location, missing)

    def read_vector(self, path: str, name: str) -> Vector:
        """Read a scalar or one-dimensional array of a group."""
        from voxload.readers.zarr.arrays import read_vector  # noqa: PLC0415 - see the class

        return read_vector(path, name)

    def read_attribute(self, path: str, node: str, name: str) -> Any:
        """Read an attribute of a group or an array; see `voxload.readers.attributes`."""
        from voxload.readers.zarr.arrays import read_attribute  # noqa: PLC0415 - see the class

        return read_attribute(path, node, name)
