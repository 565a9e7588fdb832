"""XarrayFormat: how an object of xarray's is recognised, listed and opened."""

from __future__ import annotations

from typing import Any

from voxload.errors import NotFoundError, UsageError
from voxload.readers.faults import translated
from voxload.readers.protocol import Location, Missing, Reader, Vector, as_vector
from voxload.readers.xarrays.names import SCHEME, XarrayName, variables
from voxload.readers.xarrays.reader import XarrayReader
from voxload.text import listed

_VOLUME_AXES = (3, 4)


class XarrayFormat:
    """A Dataset, a DataArray or a DataTree, whatever is behind it."""

    name = "xarray"

    def claims(self, path: str) -> bool:
        """Tell whether `path` is the name of an object."""
        return isinstance(path, XarrayName) or path.startswith(f"{SCHEME}://")

    def datasets(self, path: str) -> tuple[str, ...]:
        """Return the names of all variables of numbers with three or four axes."""
        found = variables(_held(path))
        return tuple(
            sorted(name for name, one in found.items() if one.ndim in _VOLUME_AXES and one.dtype.kind in "biuf")
        )

    def open(self, location: Location, missing: Missing) -> Reader:
        """Open one variable; without a name, the only volume there is."""
        found = variables(_held(location.path))
        name = location.dataset
        if not name and "" not in found:
            volumes = self.datasets(location.path)
            if len(volumes) != 1:
                raise UsageError(
                    str(location),
                    found=f"{len(volumes)} variables of three or four axes, {listed(volumes)}",
                    expected="the name of one",
                    remedy='name it, such as fields={"x": "temperature"}',
                )
            name = volumes[0]
        return XarrayReader(location, _variable(location.path, name, found), missing)

    def read_vector(self, path: str, name: str) -> Vector:
        """Read a scalar or one-dimensional variable or coordinate."""
        held = _held(path)
        found = variables(held)
        known = found.get(name)
        if known is None and name in getattr(held, "coords", {}):
            known = held.coords[name]
        if known is None:
            known = _variable(path, name, found)
        with translated(f"{path}:{name}"):
            return as_vector(f"{path}:{name}", known.variable)

    def read_attribute(self, path: str, node: str, name: str) -> Any:
        """Read an attribute of an object, or of one of its variables or groups."""
        held = _held(path)
        known = held if not node else variables(held).get(node)
        if known is None and hasattr(held, "subtree"):
            known = next((one for one in held.subtree if one.path.strip("/") == node), None)
        if known is None:
            known = _variable(path, node, variables(held))
        if name not in known.attrs:
            names = listed(sorted(map(str, known.attrs)))
            raise NotFoundError(f"{path}:{node}@{name}", found="no such attribute", expected=f"one of {names}")
        return known.attrs[name]


def _held(path: str) -> Any:
    """Return the object of a name."""
    if not isinstance(path, XarrayName):
        raise UsageError(
            path,
            found="the name of an object of xarray's, without the object",
            expected="the object itself",
            remedy="give the data set the Dataset, the DataArray or the DataTree",
        )
    return path.held


def _variable(path: str, name: str, found: dict[str, Any]) -> Any:
    if name not in found:
        raise NotFoundError(path, found=f"no variable {name!r}", expected=f"one of {listed(sorted(found))}")
    return found[name]
