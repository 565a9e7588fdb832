"""MetaImage: images of ITK, .mha with the voxels behind the header and .mhd with the voxels in a file beside it.

The first of DimSize runs fastest, so three are W, H and D; several channels of a voxel lie side by side. Source:
MetaIO documentation, itk.org/Wiki/MetaIO/Documentation.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

from voxload.convert.sources.flat import FlatFile
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.inflated import InflatedFile
from voxload.convert.sources.medical import medical_source
from voxload.convert.sources.metaheader import MetaHeader, has_meta_header, read_meta_header
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.readers.axes import resolve_axes
from voxload.readers.faults import translated

_AT_THE_END = -1
"""HeaderSize of voxels that are the last bytes of their file."""


class MetaImage:
    """MetaImage files, raw or in zlib, attached to their header or not."""

    name = "MetaImage"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether the file begins with lines of MetaIO, ``NDims``, ``DimSize`` and ``ElementType`` among them."""
        return has_meta_header(probe.head)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one image.

        Raises
        ------
        UsageError
            When the voxels are stored as text or in several files, or four axes have no names.
        NotFoundError
            When the file of the voxels is not there.
        DataError
            When the header is damaged, or an uncompressed file has not the length that it says.
        """
        path = probe.path
        header = read_meta_header(path)
        declared = "DHWC" if header.channels > 1 and len(header.shape) == 4 else None
        order = resolve_axes(f"{path}", ndim=len(header.shape), given=hints.axes, declared=declared)
        data, offset = _data(path, header)
        facts: dict[str, Any] = {"shape": header.shape, "dtype": header.dtype, "order": order}
        if header.is_compressed:
            file: FlatFile | InflatedFile = InflatedFile(data, offset, 0, **facts)
        else:
            file = FlatFile(data, offset, **facts)
        return (medical_source(path, file, attributes=header.attributes, affine=header.affine),)


def _data(path: Path, header: MetaHeader) -> tuple[Path, int]:
    """Return the file of the voxels and the bytes before them, or before their stream."""
    named, skipped = header.data_file, header.header_size
    if named.split()[0] == "LIST" or "%" in named:
        raise UsageError(
            f"{path}", found=f"ElementDataFile = {named}, several files", expected="one", remedy="save it as one file"
        )
    is_local = named.upper() == "LOCAL"
    if skipped < _AT_THE_END or (is_local and skipped > 0) or (header.is_compressed and skipped < 0):
        raise UsageError(
            f"{path}", found=f"HeaderSize = {skipped} for {named}", expected="a place that fits", remedy="save it again"
        )
    data, before = (path, header.length) if is_local else (path.parent / named, 0)
    if not data.is_file():
        raise NotFoundError(
            f"{path}", found=f"no {named} beside it", expected="the file of its voxels", remedy="copy it there"
        )
    if skipped != _AT_THE_END:
        return data, before + skipped
    with translated(f"{data}"):
        size = data.stat().st_size
    start = size - prod(header.shape) * header.dtype.itemsize
    if start < before:
        raise DataError(
            f"{data}", found=f"{size} bytes", expected=f"{size - start + before} or more", remedy="copy it again"
        )
    return data, start
