"""Images of predictions: nibabel reads what was predicted, where the sample lies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest

from voxload.catalog.table import Entry
from voxload.errors import UsageError
from voxload.inference import nifti
from voxload.inference.nifti import write_nifti

nib: Any = nibabel
"""Not all of it is annotated."""
TURN = nib.eulerangles.euler2mat(0.3, -0.2, 0.9)
EDGES = np.array([0.7, 0.8, 2.5])
"""Along W, H and D."""


def _written(path: Path, volume: Any, matrix: Any = None, spacing: Any = None, *, chunk: int = 1) -> Any:
    """Write a volume through slabs and load it; `matrix` is of (w, h, d), as nibabel has it."""
    affine = None if matrix is None else tuple(np.asarray(matrix)[:, [2, 1, 0, 3]].ravel().tolist())
    source = Entry("a", "a.zarr", "x", (3, *volume.shape), "<i2", "CDHW", 1, spacing=spacing, affine=affine)
    write_nifti(path, lambda a, b: volume[a:b], source=source, dtype=volume.dtype, chunk=chunk)
    return nib.load(path)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4"])
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_slabs_make_one_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, chunk: int) -> None:
    """However many planes are read at once; equal predictions are equal files."""
    volume = np.random.default_rng(0).integers(0, 200, (11, 5, 7)).astype(dtype)
    monkeypatch.setattr(nifti, "_SLAB_BYTES", 6 * volume[0].nbytes)
    matrix = nib.affines.from_matvec(TURN @ np.diag(EDGES), [1, -200, 3.5])
    image = _written(tmp_path / "a.nii.gz", volume, matrix, tuple(EDGES[::-1]), chunk=chunk)
    np.testing.assert_array_equal(np.asarray(image.dataobj).T, volume)
    assert image.get_data_dtype() == volume.dtype
    np.testing.assert_allclose(image.get_sform(), matrix, atol=1e-4)
    np.testing.assert_allclose(image.get_qform(), matrix, atol=1e-4)
    np.testing.assert_allclose(image.header.get_zooms(), EDGES, rtol=1e-6)
    assert (int(image.header["sform_code"]), int(image.header["qform_code"])) == (1, 1)
    assert image.header.get_xyzt_units()[0] == "mm"
    _written(tmp_path / "b.nii.gz", volume, matrix, tuple(EDGES[::-1]))
    assert (tmp_path / "a.nii.gz").read_bytes() == (tmp_path / "b.nii.gz").read_bytes()


def test_images_of_others_are_known(tmp_path: Path) -> None:
    """By what the header says, and never by the name alone."""
    _written(tmp_path / "a.nii.gz", np.zeros((2, 3, 4), "u1"))
    _written(tmp_path / "long.nii.gz", np.zeros((1, 1, 40000), "u1"))
    nib.save(nib.load(tmp_path / "a.nii.gz"), tmp_path / "copy.nii.gz")
    nib.save(nib.Nifti1Image(np.zeros((2, 2, 2), "u1"), np.eye(4)), tmp_path / "other.nii.gz")
    (tmp_path / "empty.nii.gz").touch()
    (tmp_path / "no.nii.gz").write_bytes(b"voxload predictions")
    (tmp_path / "cut.nii.gz").write_bytes((tmp_path / "a.nii.gz").read_bytes()[:30])
    (tmp_path / "folder.nii.gz").mkdir()
    found = {path.name.removesuffix(".nii.gz") for path in tmp_path.iterdir() if nifti.is_prediction(path)}
    assert found == {"a", "long", "copy"}


def test_a_sheared_affine_has_no_qform(tmp_path: Path) -> None:
    """Which could only say where it nearly lies."""
    matrix = np.array([[1.0, 0, 0, 0], [0, 1, 0.4, 0], [0, 0, 2, 0], [0, 0, 0, 1]])
    image = _written(tmp_path / "a.nii.gz", np.zeros((2, 3, 4), "u1"), matrix, (np.hypot(0.4, 2), 1.0, 1.0))
    np.testing.assert_allclose(image.affine, matrix, atol=1e-7)
    assert int(image.header["qform_code"]) == 0


def test_what_is_not_known_is_not_said(tmp_path: Path) -> None:
    """Neither place nor unit; a spacing alone is one."""
    image = _written(tmp_path / "a.nii.gz", np.zeros((2, 3, 4), "u1"))
    assert (int(image.header["sform_code"]), int(image.header["qform_code"])) == (0, 0)
    assert image.header.get_xyzt_units()[0] == "unknown"
    image = _written(tmp_path / "b.nii.gz", np.zeros((2, 3, 4), "u1"), spacing=(3.0, 2.0, 1.0))
    assert (image.header.get_zooms(), int(image.header["sform_code"])) == ((1.0, 2.0, 3.0), 0)
    assert image.header.get_xyzt_units()[0] == "mm"


def test_a_long_axis_needs_the_second_version(tmp_path: Path) -> None:
    """The first has room for 32,767 voxels."""
    image = _written(tmp_path / "a.nii.gz", np.arange(40000, dtype="u2").reshape(1, 1, 40000))
    assert isinstance(image, nib.Nifti2Image)
    np.testing.assert_array_equal(np.asarray(image.dataobj)[:, 0, 0], np.arange(40000))


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named before anything is predicted."""
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(UsageError, match=r"no package nibabel.*voxload\[formats\]"):
        nifti.nibabel()
