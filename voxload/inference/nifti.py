"""NIfTI: a predicted volume as one compressed image that lies where the sample lies in the patient.

Headers are made by nibabel, voxels are streamed: no volume is in memory whole. Source: nifti1.h and nifti2.h of the
NIfTI Data Format Working Group.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxload.catalog.table import Entry
from voxload.errors import UsageError

SUFFIX = ".nii.gz"
_MARK = b"voxload predictions"
"""What the header of each image is described as, by which a later run knows what it may replace."""
_SLAB_BYTES = 2**26
"""Voxels that are read and compressed at once, unless a plane has more."""
_LEVEL = 5
"""Of gzip: higher ones take twice the time for classes of voxels and store a few percent less."""
_MOST_VOXELS = 2**15 - 1
"""Along an axis, in the first version of the format; the second has room for any."""
_HEAD_BYTES = 540
"""Bytes of the longer header."""
_SQUARE = 1e-4
"""By which axes may be off a right angle for a qform to say where they point."""


def nibabel() -> Any:
    """Return the library; raises UsageError when it is not installed."""
    try:
        return import_module("nibabel")
    except ImportError as error:
        raise UsageError(
            "--format nifti", found="no package nibabel", expected="it", remedy='pip install "voxload[formats]"'
        ) from error


def write_nifti(
    path: Path, read: Callable[[int, int], NDArray[Any]], *, source: Entry, dtype: np.dtype[Any], chunk: int
) -> None:
    """Write a volume (D, H, W) that `read` gives in slabs of planes, from the first to that before the stop.

    Parameters
    ----------
    path
        The file.
    read
        Returns planes of `dtype`.
    source
        The sample that it was predicted from, for extents and place.
    dtype
        Type of the voxels.
    chunk
        Planes that are stored together: slabs are multiples of it, where they can.
    """
    stored = dict(zip(source.axes, source.shape, strict=True))
    depth, height, width = (stored[axis] for axis in "DHW")
    planes = max(1, _SLAB_BYTES // (height * width * dtype.itemsize))
    planes = planes - planes % chunk if planes > chunk else planes
    with path.open("xb") as file, gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as stream:
        stream.write(_header((width, height, depth), source, dtype))
        for first in range(0, depth, planes):
            slab = read(first, min(first + planes, depth))
            stream.write(np.ascontiguousarray(slab, dtype.newbyteorder("<")).data)


def is_prediction(path: Path) -> bool:
    """Tell whether a file is an image that `write_nifti` wrote, or a copy whose header still says so."""
    if not path.name.endswith(SUFFIX) or not path.is_file():
        return False
    try:
        with gzip.open(path) as stream:
            return _MARK in stream.read(_HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return False


def _header(shape: Sequence[int], source: Entry, dtype: np.dtype[Any]) -> bytes:
    """Return the header of an image (W, H, D), and the four bytes behind it that say that no more follows."""
    library = nibabel()
    header = (library.Nifti1Header if max(shape) <= _MOST_VOXELS else library.Nifti2Header)(endianness="<")
    header.set_data_dtype(dtype)
    header.set_data_shape(shape)
    header.set_data_offset(header.single_vox_offset)
    header["descrip"] = _MARK
    header.set_zooms([1.0] * len(shape) if source.spacing is None else source.spacing[::-1])
    if source.spacing is not None:
        header.set_xyzt_units("mm")
    if source.affine is not None:
        matrix = np.reshape(source.affine, (4, 4))[:, [2, 1, 0, 3]]  # of (w, h, d)
        axes = matrix[:3, :3] / np.linalg.norm(matrix[:3, :3], axis=0)
        if np.abs(axes.T @ axes - np.eye(3)).max() <= _SQUARE:
            header.set_qform(matrix, "scanner")
        header.set_sform(matrix, "scanner")
    block: bytes = header.binaryblock
    return block + bytes(4)
