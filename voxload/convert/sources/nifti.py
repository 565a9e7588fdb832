"""NIfTI: images of magnetic resonance and computed tomography, NIfTI-1 and NIfTI-2.

dim[1] runs fastest: it is W, dim[2] H, dim[3] D and dim[4], or dim[5] where dim[4] is 1, the channels. No voxel is
turned towards the patient; the attributes hold what a reader needs for that. Headers are read by nibabel, voxels by
position. Source: nifti1.h and nifti2.h of the NIfTI Data Format Working Group.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from voxload.convert.sources.flat import FlatFile
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.inflated import InflatedFile
from voxload.convert.sources.inflater import inflated_head
from voxload.convert.sources.medical import medical_source
from voxload.convert.sources.niftiheader import read_nifti_header
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import NotFoundError
from voxload.readers.axes import resolve_axes

_MAGICS = {344: (b"n+1\0", b"ni1\0"), 4: (b"n+2\0\r\n\x1a\n", b"ni2\0\r\n\x1a\n")}
"""Signatures by their place in the header; the second of two is that of a header whose voxels lie in another file."""

_SIZES = frozenset({348, 540})
"""Length of the header, which its first four bytes hold in its own byte order."""


class Nifti:
    """NIfTI images, plain or in gzip, in one file or two."""

    name = "NIfTI"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether the header, decompressed, has the length and signature of a NIfTI file."""
        head = inflated_head(probe.head) or probe.head
        is_sized = not _SIZES.isdisjoint({int.from_bytes(head[:4], "little"), int.from_bytes(head[:4], "big")})
        return is_sized and any(head[place:].startswith(magics) for place, magics in _MAGICS.items())

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one image.

        Voxels keep their type, unless the header scales them: then they are float32, or float64 where float32 does not
        hold every stored number exactly.

        Raises
        ------
        UsageError
            When the image has other than three axes and channels, or complex or coloured voxels.
        NotFoundError
            When the voxels lie in another file, and it is not there.
        DataError
            When the header is damaged, or a plain file has not the length that it says.
        """
        path = probe.path
        inflated = inflated_head(probe.head)
        header = read_nifti_header(f"{path}", inflated or probe.head)
        data = path if header.is_single else _image_of(path)
        order = resolve_axes(f"{path}", ndim=len(header.shape), given=hints.axes, declared=header.axes)
        is_compressed = bool(inflated) if header.is_single else data.suffix == ".gz"
        facts: dict[str, Any] = {"shape": header.shape, "dtype": header.dtype, "order": order}
        file = (
            InflatedFile(data, 0, header.offset, **facts) if is_compressed else FlatFile(data, header.offset, **facts)
        )
        return (medical_source(path, file, attributes=header.attributes, affine=header.affine, scaling=header.scaling),)


def _image_of(path: Path) -> Path:
    """Return the file of voxels beside a header."""
    stem = next((path.name.removesuffix(end) for end in (".hdr.gz", ".hdr") if path.name.endswith(end)), path.stem)
    found = [data for data in (path.with_name(f"{stem}{end}") for end in (".img", ".img.gz")) if data.is_file()]
    if not found:
        raise NotFoundError(
            f"{path}", found=f"no {stem}.img beside it", expected="the file of its voxels", remedy="copy it there"
        )
    return found[0]
