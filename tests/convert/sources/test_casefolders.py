"""Folders in which image and label are two files of one sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from voxload.convert.sources.medicine.images import Place, place_in_case


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("case_00012/imaging.nii.gz", Place(".", "imaging")),
        ("case_00012/segmentation.nii.gz", Place(".", "segmentation")),
        ("case_00012/other.nii.gz", Place("other", "image")),
        ("patient/imaging.nii.gz", Place("imaging", "image")),
        ("imagesTr/KIDNEY_007_0000.nii.gz", Place("../KIDNEY_007", "image_0000")),
        ("imagesTs/KIDNEY_007_0001.nrrd", Place("../KIDNEY_007", "image_0001")),
        ("labelsTr/KIDNEY_007.nii.gz", Place("../KIDNEY_007", "label")),
        ("labelsTr/KIDNEY_007_0000.mha", Place("../KIDNEY_007_0000", "label")),
        ("imagesTr/BRATS_001.nii.gz", Place("../BRATS_001", "image")),
        ("brain.v2.nii.gz", Place("brain.v2", "image")),
        ("brain.nii", Place("brain", "image")),
    ],
)
def test_places(tmp_path: Path, name: str, place: Place) -> None:
    """Image and label of a case get one sample, and a name each; all others are samples by themselves."""
    assert place_in_case(tmp_path / name, (".nii.gz",)) == place


def test_digits_that_are_no_channel(tmp_path: Path) -> None:
    """Four digits are part of a name, and no channel, when the label has them too."""
    (tmp_path / "labelsTr").mkdir()
    (tmp_path / "labelsTr" / "scan_0001.nii.gz").touch()
    assert place_in_case(tmp_path / "imagesTr" / "scan_0001.nii.gz", (".nii.gz",)) == Place("../scan_0001", "image")
