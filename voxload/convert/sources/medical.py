"""medical_source: what the formats of medical images have in common once their header is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voxload.convert.sources.affine import Affine
from voxload.convert.sources.casefolders import place_in_case
from voxload.convert.sources.flat import FlatFile
from voxload.convert.sources.inflated import InflatedFile
from voxload.convert.sources.protocol import RawCube
from voxload.convert.sources.scaling import Scaling
from voxload.convert.sources.stored import StoredSource, scratch_bytes

_SUFFIXES = (".nii.gz", ".hdr.gz")
"""Suffixes of two parts; all others have one."""


def medical_source(
    path: Path,
    file: FlatFile | InflatedFile,
    *,
    attributes: Mapping[str, Any],
    affine: Affine | None,
    scaling: Scaling | None = None,
) -> StoredSource:
    """Return the source of one image, whose voxels lie in `file`, the header's own or another.

    Raises
    ------
    DataError
        When a file of voxels that are not compressed has another length than they need.
    UsageError
        When the voxels are no numbers of 1 to 8 bytes.
    """
    is_stream = isinstance(file, InflatedFile)
    place = place_in_case(path, _SUFFIXES)
    decode = None if scaling is None or scaling.is_identity else scaling
    cube = RawCube(
        path,
        place.dataset,
        shape=file.shape,
        order=file.order,
        dtype=file.dtype.newbyteorder("=") if decode is None else decode.dtype(file.dtype),
        scratch_bytes=scratch_bytes(file, is_decoded=decode is not None),
        sample=place.sample,
        is_sequential=is_stream,
        companions=() if file.path == path else (file.path,),
        attributes=attributes,
        affine=affine,
    )
    if isinstance(file, FlatFile):
        file.check_size()
    return StoredSource(cube, file, decode)
