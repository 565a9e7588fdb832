"""Image and label of a case: taken where their headers put the voxels at one place, refused with both affines else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import nrrd
import numpy as np
import pytest

from voxload.convert import convert, plan_conversion
from voxload.convert.options import ConvertOptions
from voxload.convert.sources import open_sources
from voxload.convert.sources.affine import Affine
from voxload.errors import UsageError

nib: Any = nibabel
"""Not all of it is annotated."""
SHAPE = (5, 6, 7)
"""Extents along W, H and D."""
TILTED = nib.affines.from_matvec(
    nib.eulerangles.euler2mat(0.1, -0.2, 0.35) @ np.diag([0.703125, 0.703125, 3.0]), [-180.123, -160.9, 1000.7]
)
"""A tilted scan far from the scanner's middle."""
Write = Callable[[Path, Any], None]


def nifti(path: Path, affine: Any) -> None:
    """Write an image as nibabel does, with both forms."""
    image = nib.Nifti1Image(np.zeros(SHAPE, "i2"), affine)
    image.set_qform(affine)
    nib.save(image, path.with_suffix(".nii"))


def nrrd_lps(path: Path, affine: Any) -> None:
    """Write an image as 3D Slicer does."""
    lps = np.diag([-1, -1, 1, 1]) @ affine
    header = {"space": "left-posterior-superior", "space directions": lps[:3, :3].T, "space origin": lps[:3, 3]}
    nrrd.write(f"{path.with_suffix('.nrrd')}", np.zeros(SHAPE, "i2"), header)


def metaimage(path: Path, affine: Any) -> None:
    """Write an image as ITK does, of six digits."""
    lps = np.diag([-1, -1, 1, 1]) @ affine
    spacing = np.linalg.norm(lps[:3, :3], axis=0)
    lines = {
        "ObjectType": "Image",
        "NDims": 3,
        "BinaryData": True,
        "BinaryDataByteOrderMSB": False,
        "TransformMatrix": digits((lps[:3, :3] / spacing).T),
        "Offset": digits(lps[:3, 3]),
        "ElementSpacing": digits(spacing),
        "DimSize": " ".join(map(str, SHAPE)),
        "ElementType": "MET_SHORT",
        "ElementDataFile": "LOCAL",
    }
    text = "".join(f"{name} = {value}\n" for name, value in lines.items())
    path.with_suffix(".mha").write_bytes(text.encode() + bytes(2 * int(np.prod(SHAPE))))


def digits(values: Any) -> str:
    """Return numbers as C++ streams print them."""
    return " ".join(f"{value:g}" for value in np.ravel(values))


def case(folder: Path, image: Write, label: Write, moved: Any) -> Path:
    """Write a case whose label lies elsewhere."""
    for name in ("imagesTr", "labelsTr"):
        (folder / name).mkdir(parents=True)
    image(folder / "imagesTr" / "a_0000", TILTED)
    label(folder / "labelsTr" / "a", moved)
    return folder


@pytest.mark.parametrize("label", [nifti, nrrd_lps, metaimage])
@pytest.mark.parametrize("image", [nifti, nrrd_lps, metaimage])
def test_the_same_place_in_any_header_is_taken(tmp_path: Path, image: Write, label: Write) -> None:
    """Rounding to float32 and to six digits, and the patient's left for the right, make no difference."""
    plan = plan_conversion(case(tmp_path / "raw", image, label, TILTED), tmp_path / "out", ConvertOptions())
    assert len(plan.volumes) == 2


def moved(by: str) -> Any:
    """Return the affine of a label that was made wrong in a way that happens."""
    shift = np.eye(4)
    if by == "half a voxel":
        shift[:3, 3] = 0.5
    elif by == "a flipped axis":
        shift = np.diag([-1, 1, 1, 1])
        shift[0, 3] = SHAPE[0] - 1
    elif by == "another spacing":
        shift = np.diag([1, 1, 1.02, 1])
    else:
        shift[0, 3] = 0.1
    return TILTED @ shift


@pytest.mark.parametrize("by", ["half a voxel", "a flipped axis", "another spacing", "a tenth of a voxel"])
@pytest.mark.parametrize("label", [nifti, nrrd_lps, metaimage])
def test_another_place_is_refused(tmp_path: Path, label: Write, by: str) -> None:
    """Both affines are said, and both files; nothing is written."""
    raw = case(tmp_path / "raw", nifti, label, moved(by))
    with pytest.raises(UsageError, match="voxels from") as raised:
        convert(raw, tmp_path / "out")
    (image,), (other,) = (open_sources(path) for path in sorted(raw.glob("*/*")))
    for cube in (image.describe(), other.describe()):
        assert f"{cube.affine}" in str(raised.value)
        assert f"{cube.path}" in str(raised.value)
    assert not list((tmp_path / "out").glob("[!.]*"))


def test_affines_are_those_of_the_libraries(tmp_path: Path) -> None:
    """Three writers, one map from (w, h, d) to the patient's right, front and top."""
    for write, suffix in ((nifti, ".nii"), (nrrd_lps, ".nrrd"), (metaimage, ".mha")):
        write(tmp_path / "a", TILTED)
        (source,) = open_sources(tmp_path / f"a{suffix}")
        affine = source.describe().affine
        assert affine is not None
        np.testing.assert_allclose(affine.rows, TILTED[:3], atol=0.004)


def test_a_header_that_says_no_place_is_not_compared(tmp_path: Path) -> None:
    """NIfTI with both codes 0 knows spacing only."""
    raw = case(tmp_path / "raw", nifti, nifti, TILTED)
    image = nib.Nifti1Image(np.zeros(SHAPE, "i2"), None)
    image.header.set_zooms((9, 9, 9))
    nib.save(image, raw / "labelsTr" / "a.nii")
    assert len(plan_conversion(raw, tmp_path / "out", ConvertOptions()).volumes) == 2


def test_units_and_frames() -> None:
    """Metres are a thousand millimetres; numbers that are none give no map, and foreign frames are kept apart."""
    steps, origin = np.eye(3), np.zeros(3)
    metres, plain = Affine.of("RAS", steps, origin, unit="meter"), Affine.of("LPS-time", steps * 1000, origin)
    assert metres is not None
    assert plain is not None
    assert metres.frame == plain.frame
    assert metres.voxel == pytest.approx(1000)
    assert metres.rows[0][0] == -plain.rows[0][0]
    assert Affine.of("RAS", steps * np.nan, origin) is None
    assert Affine.of("RAS", steps[:2], origin) is None
    other = Affine.of("scanner-xyz", steps, origin)
    assert other is not None
    assert other.frame == "scanner-xyz"
