"""NIfTI: images of magnetic resonance and computed tomography, NIfTI-1 and NIfTI-2.

dim[1] runs fastest: it is W, dim[2] H, dim[3] D and dim[4], or dim[5] where dim[4] is 1, the channels. No voxel is
turned towards the patient; the attributes hold what a reader needs for that. Headers are read by nibabel, voxels by
position. Source: nifti1.h and nifti2.h of the NIfTI Data Format Working Group.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.sources.affine import PATIENT, Affine, millimetres
from voxload.convert.sources.binary.flat import FlatFile
from voxload.convert.sources.binary.inflater import inflated_head
from voxload.convert.sources.binary.stored import InflatedFile, Scaling
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.libraries import library
from voxload.convert.sources.medicine.images import medical_source
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.readers.axes import resolve_axes
from voxload.readers.faults import translated

_HEADER_1_BYTES = 348
_HEADER_2_BYTES = 540
_MOST_AXES = 7
_SPATIAL = 3


@dataclass(frozen=True, slots=True)
class NiftiHeader:
    """One image."""

    shape: tuple[int, ...]
    """Extents, slowest axis first: three, or four with the channels first."""
    dtype: np.dtype[Any]
    """Stored type, with the stored byte order."""
    offset: int
    """Bytes before the first voxel, in the file that holds the voxels, once decompressed."""
    scaling: Scaling
    """What stored numbers stand for."""
    is_single: bool
    """Whether header and voxels are in one file."""
    attributes: dict[str, Any]
    """Spacing along D, H and W, affine, orientation and units."""
    affine: Affine | None
    """Where the voxels lie; None where neither sform nor qform says it."""
    spacing: tuple[float, ...]
    """mm between voxels along the axes of `shape`; infinite along the channels."""

    @property
    def axes(self) -> str:
        """Order of the axes, slowest first."""
        return "DHW" if len(self.shape) == _SPATIAL else "CDHW"


def read_nifti_header(subject: str, head: bytes) -> NiftiHeader:
    """Return what the first bytes of a NIfTI file say; raises DataError when they are damaged.

    Raises UsageError on an image that is no volume with channels.
    """
    nibabel = library("nibabel", subject)
    is_second = head[4:7] in (b"n+2", b"ni2")
    kind, length = (nibabel.Nifti2Header, _HEADER_2_BYTES) if is_second else (nibabel.Nifti1Header, _HEADER_1_BYTES)
    try:
        with translated(subject):
            header = kind(binaryblock=head[:length], check=False)
            rank = int(header["dim"][0])
            if not 1 <= rank <= _MOST_AXES or min(header["dim"][1 : rank + 1]) < 1:
                raise DataError(subject, found=f"dim {header['dim'].tolist()}", expected="1 to 7 extents of 1 or more")
            slope, intercept = header.get_slope_inter()
            magic = bytes(header["magic"])
            shape = _shape(subject, header.get_data_shape())
            return NiftiHeader(
                shape=shape,
                dtype=_dtype(subject, header.get_data_dtype()),
                offset=_offset(subject, header["vox_offset"], is_single=magic[1:2] == b"+", least=length + 4),
                scaling=Scaling(1.0, 0.0) if slope is None else Scaling(float(slope), float(intercept)),
                is_single=magic[1:2] == b"+",
                attributes=_attributes(nibabel, header),
                affine=_affine(header),
                spacing=(*[inf] * (len(shape) - _SPATIAL), *_spacing(header)),
            )
    except nibabel.spatialimages.HeaderDataError as error:
        raise DataError(subject, found=str(error), expected="a NIfTI header") from error


def _shape(subject: str, dim: tuple[int, ...]) -> tuple[int, ...]:
    """Return the extents of a volume, slowest first, from the file's own, fastest first."""
    extents = [int(extent) for extent in dim]
    while len(extents) > _SPATIAL and extents[-1] == 1:
        extents.pop()
    channels = [extent for extent in extents[_SPATIAL:] if extent != 1]
    if len(extents) < _SPATIAL or len(channels) > 1:
        raise UsageError(
            subject,
            found=f"dim {tuple(dim)}",
            expected="three spatial axes, and one more at most: time or the parts of a vector",
            remedy="split the image by time, or move the file away",
        )
    return (*channels, *extents[_SPATIAL - 1 :: -1])


def _dtype(subject: str, stored: np.dtype[Any]) -> np.dtype[Any]:
    """Refuse types that no scaling could keep: colours, complex and extended floats."""
    if stored.kind not in "iuf" or stored.itemsize > np.dtype(np.float64).itemsize:
        raise UsageError(subject, found=f"dtype {stored}", expected="integers or floats of 1 to 8 bytes a voxel")
    return stored


def _offset(subject: str, value: Any, *, is_single: bool, least: int) -> int:
    """Return vox_offset, which NIfTI-1 stores as a float."""
    offset = int(value)
    smallest = least if is_single else 0
    if offset != value or offset < smallest:
        raise DataError(subject, found=f"vox_offset {value}", expected=f"a whole number, {smallest} or more")
    return offset


def _attributes(nibabel: Any, header: Any) -> dict[str, Any]:
    affine = header.get_best_affine()
    space, _ = header.get_xyzt_units()
    codes = nibabel.aff2axcodes(affine) if np.isfinite(affine).all() else (None, None, None)
    found: dict[str, Any] = {
        "spacing": [float(width) for width in header.get_zooms()[_SPATIAL - 1 :: -1]],
        "affine": affine.tolist(),
        "orientation": "".join(code or "?" for code in codes),
        "units": space,
    }
    return {name: value for name, value in found.items() if isinstance(value, str) or np.isfinite(value).all()}


def _affine(header: Any) -> Affine | None:
    """Return where the voxels lie: by the sform, else by the qform, as nibabel and ITK choose."""
    if not (int(header["sform_code"]) > 0 or int(header["qform_code"]) > 0):
        return None
    whole = np.asarray(header.get_best_affine(), np.float64)
    return Affine.of(
        PATIENT, whole[:_SPATIAL, :_SPATIAL].T, whole[:_SPATIAL, _SPATIAL], unit=header.get_xyzt_units()[0]
    )


def _spacing(header: Any) -> list[float]:
    """Return pixdim in mm, the slowest axis first; NaN where an axis has none."""
    scale = millimetres(header.get_xyzt_units()[0])
    return [float(width) * scale for width in header.get_zooms()[_SPATIAL - 1 :: -1]]


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
        placed: dict[str, Any] = {"affine": header.affine, "spacing": header.spacing}
        return (medical_source(path, file, attributes=header.attributes, scaling=header.scaling, **placed),)


def _image_of(path: Path) -> Path:
    """Return the file of voxels beside a header."""
    stem = next((path.name.removesuffix(end) for end in (".hdr.gz", ".hdr") if path.name.endswith(end)), path.stem)
    found = [data for data in (path.with_name(f"{stem}{end}") for end in (".img", ".img.gz")) if data.is_file()]
    if not found:
        raise NotFoundError(
            f"{path}", found=f"no {stem}.img beside it", expected="the file of its voxels", remedy="copy it there"
        )
    return found[0]
