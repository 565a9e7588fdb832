"""Spacing and affine of medical images on their way into the catalogue: as nibabel and SimpleITK have them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nibabel
import nrrd
import numpy as np
import pyarrow.parquet as pq
import pytest
import SimpleITK
from hypothesis import given
from hypothesis import strategies as st

from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog, Entry
from voxload.convert import ConvertOptions, Hints, Packing, StoredFormat, convert
from voxload.convert.manifest import ATTRIBUTE, Manifest, read_manifest
from voxload.convert.sources import open_sources
from voxload.convert.sources.affine import Affine, millimetres, spacing_of
from voxload.convert.write.catalogue import complete_volumes, is_catalogued
from voxload.errors import DataError

nib: Any = nibabel
sitk: Any = SimpleITK
"""Not all of them is annotated."""
SHAPE = (4, 6, 8)
"""Extents along D, H and W."""
TILTED = nib.affines.from_matvec(
    nib.eulerangles.euler2mat(0.1, -0.2, 0.35) @ np.diag([0.703125, 0.8, 3.0]), [-180.123, -160.9, 1000.7]
)
"""Of a tilted scan, from (i, j, k), which are (w, h, d), to RAS."""
VOXELS = np.arange(np.prod(SHAPE), dtype="<i2").reshape(SHAPE)
Write = Callable[..., Path]


def nifti(path: Path, affine: Any = TILTED, *, codes: int = 1, unit: str = "mm", voxels: Any = VOXELS) -> Path:
    """Write an image; codes of 0 say that the affine is none."""
    path = path.with_suffix(".nii")
    image = nib.Nifti1Image(voxels.T, affine)
    image.header.set_xyzt_units(unit)
    image.set_sform(affine, codes)
    image.set_qform(affine, codes)
    nib.save(image, path)
    return path


def itk(path: Path, affine: Any = TILTED, *, suffix: str = ".mha", voxels: Any = VOXELS) -> Path:
    """Write an image as ITK does, whose places are LPS."""
    lps = np.diag([-1, -1, 1, 1]) @ affine
    edges = np.linalg.norm(lps[:3, :3], axis=0)
    image = sitk.GetImageFromArray(voxels)
    image.SetSpacing(edges.tolist())
    image.SetDirection((lps[:3, :3] / edges).ravel().tolist())
    image.SetOrigin(lps[:3, 3].tolist())
    sitk.WriteImage(image, f"{path.with_suffix(suffix)}")
    return path.with_suffix(suffix)


def itk_nrrd(path: Path, affine: Any = TILTED) -> Path:
    """Write the same as NRRD."""
    return itk(path, affine, suffix=".nrrd")


def matrix(affine: Sequence[float] | None) -> Any:
    """Return the 16 numbers of a catalogue as a matrix."""
    assert affine is not None
    assert len(affine) == 16
    return np.reshape(affine, (4, 4))


def only(path: Path, out: Path, **options: Any) -> Entry:
    """Convert a file of one sample; return its row."""
    catalog = Catalog.read(convert(path, out, options=ConvertOptions(**options)).catalog)
    ((sample, dataset),) = catalog.keys
    return catalog.entry(sample, dataset)


@pytest.mark.parametrize("write", [nifti, itk, itk_nrrd])
def test_a_row_has_what_nibabel_and_itk_have(tmp_path: Path, write: Write) -> None:
    """The matrix is nibabel's with the columns of i and k exchanged, and ITK's places with two signs turned."""
    path = write(tmp_path / "a")
    entry = only(path, tmp_path / "out")
    found = matrix(entry.affine)
    np.testing.assert_allclose(found[:, [2, 1, 0, 3]], TILTED, atol=1e-4)
    assert entry.spacing is not None
    image = sitk.ReadImage(f"{path}")
    np.testing.assert_allclose(entry.spacing, image.GetSpacing()[::-1], rtol=1e-6)
    np.testing.assert_allclose(entry.spacing, spacing_of(found), rtol=1e-12)
    for d, h, w in ((0, 0, 0), (3, 5, 7), (1, 4, 2)):
        place = np.diag([-1, -1, 1, 1]) @ found @ [d, h, w, 1]
        np.testing.assert_allclose(place[:3], image.TransformIndexToPhysicalPoint((w, h, d)), atol=1e-3)
        assert image[w, h, d] == VOXELS[d, h, w]
    if write is nifti:
        loaded = nib.load(path)
        np.testing.assert_array_equal(found[:, [2, 1, 0, 3]], loaded.affine)
        np.testing.assert_allclose(entry.spacing[::-1], nib.affines.voxel_sizes(loaded.affine))


@pytest.mark.parametrize("stored", list(StoredFormat))
def test_samples_that_are_cut_lie_where_their_voxels_lay(tmp_path: Path, stored: StoredFormat) -> None:
    """The first voxel of each sample is at the place that nibabel's affine gives it in the image."""
    nifti(tmp_path / "a")
    report = convert(tmp_path / "a.nii", tmp_path / "out", options=ConvertOptions(split=(2, 3, 4), format=stored))
    catalog = Catalog.read(report.catalog)
    loaded = nib.load(tmp_path / "a.nii").affine
    assert len(catalog) == 8
    for sample in catalog.samples:
        entry = catalog.entry(sample, "image")
        assert entry.origin is not None
        for voxel in ((0, 0, 0), (1, 2, 3)):
            whole = np.add(entry.origin, voxel)[::-1]
            np.testing.assert_allclose(matrix(entry.affine) @ [*voxel, 1], loaded @ [*whole, 1], rtol=1e-12)


@pytest.mark.long
def test_packed_images_keep_their_own(tmp_path: Path) -> None:
    """Images of one volume lie at places of their own, and are cut into samples at places of their own."""
    (tmp_path / "raw").mkdir()
    for number in range(3):
        moved = TILTED.copy()
        moved[0, 3] += 10 * number
        nifti(tmp_path / "raw" / f"a{number}", moved)
    for name, split in (("whole", None), ("cut", (2, 6, 8))):
        options = ConvertOptions(pack=Packing.ALWAYS, split=split)
        catalog = Catalog.read(convert(tmp_path / "raw", tmp_path / name, options=options).catalog)
        assert len({catalog.entry(sample, "image").path for sample in catalog.samples}) == 1
        assert len(catalog) == (3 if split is None else 6)
        for sample in catalog.samples:
            entry = catalog.entry(sample, "image")
            loaded = nib.load(tmp_path / "raw" / f"{entry.universe or sample}.nii").affine
            first = loaded @ [*(entry.origin or (0, 0, 0))[::-1], 1]
            np.testing.assert_allclose(matrix(entry.affine)[:, 3], first, rtol=1e-12)


def test_axes_that_the_caller_names_have_their_own_columns(tmp_path: Path) -> None:
    """The slowest axis of a file may be called W: its step is then W's."""
    nifti(tmp_path / "a")
    entry = only(tmp_path / "a.nii", tmp_path / "out", hints=Hints("WHD"))
    loaded = nib.load(tmp_path / "a.nii").affine
    np.testing.assert_array_equal(matrix(entry.affine), loaded)
    np.testing.assert_allclose(entry.spacing or (), nib.affines.voxel_sizes(loaded))
    field = np.zeros((2, *SHAPE), "<i2")
    nifti(tmp_path / "b", voxels=field)
    (source,) = open_sources(tmp_path / "b.nii", Hints("CDHW"))
    assert source.describe().patient_affine is not None
    (source,) = open_sources(tmp_path / "b.nii", Hints("DCHW"))  # what the header calls time is a depth, it is said
    assert (source.describe().patient_affine, source.describe().spacing) == (None, None)


@pytest.mark.long
def test_what_is_not_known_is_null(tmp_path: Path) -> None:
    """A cube of numpy lies nowhere; NIfTI without a form has a spacing, in the unit that it names, and no place."""
    np.save(tmp_path / "x.npy", VOXELS)
    plain = only(tmp_path / "x.npy", tmp_path / "npy")
    assert (plain.spacing, plain.affine) == (None, None)
    for number, (unit, scale) in enumerate((("mm", 1.0), ("micron", 1e-3), ("meter", 1e3), ("unknown", 1.0))):
        nifti(tmp_path / f"a{number}", np.diag([2.0, 3, 4, 1]), codes=0, unit=unit)
        entry = only(tmp_path / f"a{number}.nii", tmp_path / f"out{number}")
        assert entry.affine is None
        np.testing.assert_allclose(entry.spacing or (), np.array([4, 3, 2]) * scale)


@pytest.mark.parametrize(
    ("header", "spacing"),
    [
        ({"spacings": [1, 2, 3]}, (3, 2, 1)),
        ({"spacings": [1, 2, 3], "units": ["um", "mm", "cm"]}, (30, 2, 0.001)),
        ({"spacings": [1, 2, 3], "units": ["mm", "mm", "s"]}, None),
        ({"spacings": [1, 2, np.nan]}, None),
        ({"spacings": [1, 2, 0]}, None),
        ({"space": "scanner-xyz", "space directions": np.diag([1.0, 2, 3]), "space origin": [0, 0, 0]}, (3, 2, 1)),
        ({}, None),
    ],
)
def test_nrrd_outside_of_a_patient(tmp_path: Path, header: dict[str, Any], spacing: tuple[float, ...] | None) -> None:
    """Distances in a unit of length are known wherever the image lies; seconds are none."""
    nrrd.write(f"{tmp_path / 'a.nrrd'}", VOXELS.T, header)
    entry = only(tmp_path / "a.nrrd", tmp_path / "out")
    assert entry.affine is None
    assert entry.spacing == (spacing if spacing is None else pytest.approx(spacing))


def test_units_that_are_no_length() -> None:
    """They make another frame: nothing is in millimetres then, and only images of that unit are compared."""
    steps, origin = np.eye(3), np.zeros(3)
    foreign, plain = (Affine.of("RAS", steps, origin, unit=unit) for unit in ("furlong", "mm"))
    assert foreign is not None
    assert plain is not None
    assert foreign.frame != plain.frame
    assert foreign.from_voxels((0, 1, 2)) is None
    assert plain.from_voxels((0, 1, 2)) is not None
    assert np.isnan(millimetres("furlong"))


@pytest.mark.parametrize("steps", [np.zeros((3, 3)), np.ones((3, 3)), np.eye(3) * 1e300, np.diag([1, 1, 1e-12])])
def test_axes_that_span_nothing(steps: Any) -> None:
    """A header may claim anything: what no program could invert is not known."""
    affine = Affine.of("RAS", steps, np.zeros(3))
    assert affine is not None
    assert affine.from_voxels((0, 1, 2)) is None


@given(
    steps=st.lists(st.floats(-5, 5), min_size=12, max_size=12),
    axes=st.permutations((0, 1, 2)),
    voxel=st.tuples(*[st.integers(0, 500)] * 3),
)
def test_any_order_of_axes_gives_one_place(
    steps: list[float], axes: Sequence[int], voxel: tuple[int, int, int]
) -> None:
    """A voxel lies where the header's own rows put it, whichever axis the file has first."""
    rows = np.reshape(steps, (3, 4))
    affine = Affine.of("RAS", rows[:, :3].T, rows[:, 3])
    assert affine is not None
    found = affine.from_voxels(axes)
    if found is None:
        assert np.linalg.cond(rows[:, :3]) > 1e6 or np.linalg.norm(rows[:, :3], axis=0).min() < 1e-8
        return
    fastest_first = [voxel[axis] for axis in axes[::-1]]
    np.testing.assert_allclose(matrix(found) @ [*voxel, 1], [*(rows @ [*fastest_first, 1]), 1], atol=1e-8)


def _without_geometry(folder: Path) -> None:
    """Make of a folder what a version made that knew neither spacing nor affine."""
    for path in folder.glob("*.zarr/zarr.json"):
        document = json.loads(path.read_text())
        for part in document["attributes"][ATTRIBUTE]["parts"]:
            del part["spacing"], part["affine"]
        path.write_text(json.dumps(document))
    table = pq.read_table(folder / CATALOG_NAME)
    pq.write_table(table.drop_columns(["spacing", "affine"]), folder / CATALOG_NAME)


def test_a_folder_of_an_earlier_version(tmp_path: Path) -> None:
    """Its volumes are complete and not converted again; its catalogue is read, and written anew with nulls."""
    nifti(tmp_path / "a")
    convert(tmp_path / "a.nii", tmp_path / "out")
    new = Catalog.read(tmp_path / "out")
    facts: dict[str, Any] = {"summed": [], "checksums": "catalog.checksums.parquet"}
    assert is_catalogued(tmp_path / "out", complete_volumes(tmp_path / "out"), **facts)
    _without_geometry(tmp_path / "out")
    old = Catalog.read(tmp_path / "out").entry("a", "image")
    assert (old.spacing, old.affine) == (None, None)
    again = convert(tmp_path / "a.nii", tmp_path / "out")
    assert (again.converted, again.skipped) == ((), ("a",))
    table = pq.read_table(tmp_path / "out" / CATALOG_NAME)
    assert table.schema == new.table.schema
    assert table.column("affine").null_count == 1
    assert is_catalogued(tmp_path / "out", complete_volumes(tmp_path / "out"), **facts)


@pytest.mark.parametrize("stored", list(StoredFormat))
def test_a_volume_that_is_converted_again(tmp_path: Path, stored: StoredFormat) -> None:
    """It lies where it lay; where the caller calls its axes otherwise, nobody knows."""
    nifti(tmp_path / "a")
    first = only(tmp_path / "a.nii", tmp_path / "once", format=stored)
    again = only(tmp_path / "once" / f"a{stored.suffix}", tmp_path / "twice", chunks=(2, 3, 4))
    assert first.affine is not None
    assert (again.spacing, again.affine) == (first.spacing, first.affine)
    turned = only(tmp_path / "once" / f"a{stored.suffix}", tmp_path / "turned", hints=Hints("CWHD"))
    assert (turned.spacing, turned.affine) == (None, None)


@pytest.mark.parametrize(
    "wrong", [{"affine": [1.0] * 12}, {"affine": "far"}, {"spacing": [1.0, 1.0]}, {"spacing": [1, 1, float("inf")]}]
)
def test_a_damaged_manifest(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """Numbers that are none, or too few, are told."""
    nifti(tmp_path / "a")
    convert(tmp_path / "a.nii", tmp_path / "out")
    manifest = read_manifest(tmp_path / "out" / "a.zarr")
    assert manifest is not None
    values = manifest.to_json()
    assert Manifest.from_json(values, "a") == manifest
    values["parts"][0] |= wrong
    with pytest.raises(DataError, match="a damaged manifest"):
        Manifest.from_json(values, "a")
    with pytest.raises(DataError, match="no parts"):
        Manifest.from_json(values | {"parts": []}, "a")
