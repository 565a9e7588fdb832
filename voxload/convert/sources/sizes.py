"""Extents from sizes: what the length of a file or a record says of the cube in it."""

from __future__ import annotations

from voxload.convert.sources.probe import Probe

_SIGNATURES = (b"\x93NUMPY", b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"SIMPLE  =", b"CDF", b"\x89PNG", b"%PDF")
"""How files of numpy, zip, gzip, zstd, FITS, netCDF and of no data at all begin."""


def exact_cube_root(count: int) -> int | None:
    """Return the extent of a cube of `count` voxels; None where there is no such cube.

    >>> exact_cube_root(128**3), exact_cube_root(128**3 + 1)
    (128, None)
    """
    near = round(count ** (1 / 3)) if count > 0 else 0
    return next((root for root in (near - 1, near, near + 1) if root > 0 and root**3 == count), None)


def has_signature(probe: Probe) -> bool:
    """Tell whether a file begins like one of a format with a header of its own: then it is not headerless."""
    return probe.is_hdf5 or probe.head.startswith(_SIGNATURES)
