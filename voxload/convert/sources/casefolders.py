"""place_in_case: which sample and volume a medical image is, where image and label are two files of one sample.

KiTS: ``case_00000/imaging.nii.gz`` and ``segmentation.nii.gz``. nnU-Net: ``imagesTr/NAME_0000.nii.gz``, the four
digits a channel, and ``labelsTr/NAME.nii.gz``. Medical Segmentation Decathlon: the same without digits.
Source: the README of neheller/kits19; documentation/dataset_format.md of MIC-DKFZ/nnUNet; http://medicaldecathlon.com.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from voxload.convert.sources.imagenames import IMAGE

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
