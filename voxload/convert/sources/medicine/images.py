"""Medical images once their header is read: case, volume, source, and alignment with others of the case.

place_in_case: which sample and volume a medical image is, where image and label are two files of one sample. KiTS:
``case_00000/imaging.nii.gz`` and ``segmentation.nii.gz``. nnU-Net: ``imagesTr/NAME_0000.nii.gz``, the four digits a
channel, and ``labelsTr/NAME.nii.gz``. Medical Segmentation Decathlon: the same without digits. Source: the README of
neheller/kits19; documentation/dataset_format.md of MIC-DKFZ/nnUNet; http://medicaldecathlon.com.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from voxload.convert.sources.affine import Affine, plain_spacing, spacing_of
from voxload.convert.sources.binary.flat import FlatFile
from voxload.convert.sources.binary.stored import InflatedFile, Scaling, StoredSource, scratch_bytes
from voxload.convert.sources.names import IMAGE
from voxload.convert.sources.protocol import RawCube
from voxload.errors import UsageError
from voxload.readers.axes import AxisOrder

_KITS_CASE = re.compile(r"case_\d+")
_KITS_NAMES = ("imaging", "segmentation")
_IMAGES = re.compile(r"images(Tr|Ts)")
_LABELS = re.compile(r"labels(Tr|Ts)")
_CHANNEL = re.compile(r"(?P<name>.+)_(?P<channel>\d{4})")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a converted volume belongs."""

    sample: str
    """Name of the sample below the file's folder, as ``RawCube.sample`` has it."""
    dataset: str
    """Name of the volume."""


def place_in_case(path: Path, suffixes: tuple[str, ...]) -> Place:
    """Return the sample and volume of an image by its name and folder; `suffixes` are those of two parts.

    >>> place_in_case(Path("kits/case_00007/segmentation.nii.gz"), (".nii.gz",))
    Place(sample='.', dataset='segmentation')
    """
    stem = next((path.name.removesuffix(end) for end in suffixes if path.name.endswith(end)), path.stem)
    folder = path.absolute().parent
    if stem in _KITS_NAMES and _KITS_CASE.fullmatch(folder.name):
        return Place(".", stem)
    if _LABELS.fullmatch(folder.name):
        return Place(f"../{stem}", "label")
    if images := _IMAGES.fullmatch(folder.name):
        channel = _CHANNEL.fullmatch(stem)
        # Of a decathlon image whose own name ends in four digits, the label has the same whole name.
        label = folder.with_name(f"labels{images[1]}") / path.name
        if channel is None or label.exists():
            return Place(f"../{stem}", IMAGE)
        return Place(f"../{channel['name']}", f"{IMAGE}_{channel['channel']}")
    return Place(stem, IMAGE)


_SUFFIXES = (".nii.gz", ".hdr.gz")
"""Suffixes of two parts; all others have one."""


def medical_source(
    path: Path,
    file: FlatFile | InflatedFile,
    *,
    attributes: Mapping[str, Any],
    affine: Affine | None,
    spacing: Sequence[float],
    scaling: Scaling | None = None,
) -> StoredSource:
    """Return the source of one image, whose voxels lie in `file`, the header's own or another.

    Parameters
    ----------
    path
        The header.
    file
        The voxels.
    attributes
        What the header says, in its own words.
    affine
        Where its three spatial axes lie; None where it does not say that.
    spacing
        mm between neighbouring voxels along the file's axes, slowest first: NaN where it is not known, infinite along
        an axis that is none of space.
    scaling
        What makes voxels of stored numbers.

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
        **geometry(file.order, affine, spacing),
    )
    if isinstance(file, FlatFile):
        file.check_size()
    return StoredSource(cube, file, decode)


def geometry(order: AxisOrder, affine: Affine | None, spacing: Sequence[float]) -> dict[str, Any]:
    """Return where the voxels lie, and how far apart: by the affine where it is one of the patient's.

    So that the two never contradict each other, whatever a header says twice. Where the caller names another axis for
    that of the channels than the header does, it says nothing of the caller's axes.
    """
    of_channels = [axis == "C" for axis in order.axes]
    if [value == inf for value in spacing] != of_channels:
        affine = None
    axes = [axis for axis in order.axes if axis != "C"]
    matrix = None if affine is None else affine.from_voxels(["DHW".index(axis) for axis in axes])
    if matrix is not None:
        return {"affine": affine, "spacing": spacing_of(matrix)}
    along = dict(zip(order.axes, spacing, strict=True))
    return {"affine": affine, "spacing": plain_spacing([along[axis] for axis in "DHW"])}


_TOLERANCE = 0.05
"""Voxels by which the places of one voxel may differ.

Headers round: float32 of a place a metre away is good to 6e-5 mm, and of a direction to 1e-7, which 1,000 voxels make
1e-4 of a voxel; six digits of a text are good to 0.005 mm there, a hundredth of a fine voxel. Wrong by mistake is half
a voxel (centres for corners) or more. A tenth of that mistake lies well between the two.
"""


def check_alignment(subject: str, cubes: Sequence[RawCube]) -> None:
    """Refuse volumes of one sample of which the same voxel lies at different places.

    Those whose headers say nothing of that, or in another frame, cannot be compared and are taken as they are.

    Raises
    ------
    UsageError
        Naming two of them and the affine of each.
    """
    known = [(cube, cube.affine) for cube in cubes if cube.affine is not None]
    for place, (cube, affine) in enumerate(known):
        first, expected = next(one for one in known[: place + 1] if one[1].frame == affine.frame)
        extents = [extent for extent, axis in zip(cube.shape, cube.order.axes, strict=True) if axis != "C"][::-1]
        apart = expected.distance(affine, extents) / min(expected.voxel, affine.voxel)
        if apart > _TOLERANCE:
            raise UsageError(
                subject,
                found=f"{cube.dataset} ({cube.path}) with the affine {affine}, {apart:.3g} voxels from {first.dataset}",
                expected=f"{expected}, as {first.dataset} ({first.path}) has it",
                remedy=(
                    "resample one onto the voxels of the other; where only a header is wrong, write the right affine "
                    "into it; to convert them as they lie, convert each from a folder of its own"
                ),
            )
