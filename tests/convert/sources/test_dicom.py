"""DICOM series as pydicom writes them: the volume that ITK reads, or an error that says why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pydicom
import pytest
import SimpleITK
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom.pixels.encoders.base import RLELosslessEncoder
from pydicom.uid import (
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGLSLossless,
    RLELossless,
)

from tests.convert.sources.dicomfiles import AXIAL, TILTED, Study
from tests.laws.source import Array, check_converts, check_source, coordinates, read_box
from voxload.catalog.table import Catalog
from voxload.convert import ConvertOptions, convert
from voxload.convert.sources import open_sources
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.medicine.dicom import Dicom
from voxload.convert.sources.medicine.headers import Header, read_header
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, UsageError
from voxload.geometry import Box

sitk: Any = SimpleITK
"""Not all of it is annotated."""
VOLUME = coordinates((1, 5, 4, 6), "<i2")[0]


def opened(folder: Path, **hints: Any) -> Source:
    """Open the series of a folder by its first file."""
    path = min(folder.rglob("*.dcm"))
    assert Dicom().claims(Probe(path))
    (source,) = Dicom().sources(Probe(path), Hints(**hints))
    return source


def itk(folder: Path) -> Any:
    """Return what ITK's reader of series makes of a folder."""
    reader = sitk.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(f"{folder}"))
    return reader.Execute()


def check_place(source: Source, image: Any) -> None:
    """Hold a source to ITK's image: spacing, and the place of the voxels at its corners."""
    cube = source.describe()
    assert cube.patient_affine is not None
    assert cube.spacing is not None
    np.testing.assert_allclose(cube.spacing, image.GetSpacing()[::-1], rtol=1e-6)
    matrix = np.diag([-1, -1, 1, 1]) @ np.reshape(cube.patient_affine, (4, 4))
    depth, height, width = cube.shape
    for d, h, w in np.ndindex(2, 2, 2):
        voxel = (d * (depth - 1), h * (height - 1), w * (width - 1))
        place = image.TransformIndexToPhysicalPoint(voxel[::-1])
        np.testing.assert_allclose((matrix @ [*voxel, 1])[:3], place, atol=1e-5)


@pytest.mark.parametrize("orientation", [AXIAL, TILTED, (0, 1.0, 0, 0, 0, -1.0)], ids=["axial", "tilted", "sagittal"])
@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, ExplicitVRLittleEndian, ExplicitVRBigEndian])
def test_no_axis_moves(tmp_path: Path, syntax: str, orientation: tuple[float, ...]) -> None:
    """Columns are W, rows H, and slices D in the order of their places, whatever their names; as ITK reads them."""
    folder = Study(tmp_path / "scan", orientation, syntax=syntax).write_all(VOLUME)
    source = opened(folder)
    check_source(source, VOLUME[np.newaxis])
    image = itk(folder)
    np.testing.assert_array_equal(sitk.GetArrayFromImage(image), VOLUME)
    check_place(source, image)
    cube = source.describe()
    assert (cube.order.axes, cube.dataset, cube.is_sequential) == ("DHW", "image", False)
    assert len(cube.companions) == 4
    check_converts(folder, {("scan", "image"): VOLUME[np.newaxis]})


@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", "<i2", "<u4", "<i4"])
@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, ExplicitVRBigEndian])
def test_types_of_either_byte_order(tmp_path: Path, dtype: str, syntax: str) -> None:
    """Integers of 1, 2 and 4 bytes, signed and not; of rows of odd lengths."""
    volume = coordinates((1, 3, 5, 3), dtype) - np.array(7).astype(dtype)
    check_source(opened(Study(tmp_path, syntax=syntax).write_all(volume[0])), volume)


@pytest.mark.parametrize(("kind", "values"), [("i", (-2048, 2047, -1, 0)), ("u", (4095, 0, 2048, 1))])
def test_bits_that_are_not_used(tmp_path: Path, kind: str, values: tuple[int, ...]) -> None:
    """Of twelve bits of sixteen the highest four may hold anything: the sign is the twelfth, as pydicom has it."""
    volume = np.array(values * 6, f"<{kind}2").reshape(2, 3, 4)
    stored = (volume.view("<u2") & 0x0FFF) | 0x5000
    study = Study(tmp_path)
    for place, plane in enumerate(stored.view(f"<{kind}2")):
        study.write(f"{place}.dcm", plane, place, BitsStored=12, HighBit=11)
    check_source(opened(tmp_path), volume[np.newaxis])
    np.testing.assert_array_equal(pydicom.dcmread(tmp_path / "0.dcm").pixel_array, volume[0])


def test_scaled_voxels_become_floats(tmp_path: Path) -> None:
    """CT is scaled to Hounsfield units, in float32 that holds each of them exactly, as ITK has it."""
    folder = Study(tmp_path / "ct").write_all(VOLUME, RescaleSlope="0.5", RescaleIntercept="-1024")
    source = opened(folder)
    expected = (VOLUME * 0.5 - 1024).astype("f4")
    check_source(source, expected[np.newaxis])
    np.testing.assert_array_equal(sitk.GetArrayFromImage(itk(folder)).astype("f4"), expected)
    wide = Study(tmp_path / "wide").write_all(VOLUME.astype("<i4"), RescaleSlope="2")
    assert opened(wide).describe().dtype == np.float64
    plain = Study(tmp_path / "plain").write_all(VOLUME, RescaleSlope="1", RescaleIntercept="0")
    assert opened(plain).describe().dtype == np.int16


def test_each_slice_has_its_own_scale(tmp_path: Path) -> None:
    """Slices of PET are scaled one by one, some of them by nothing."""
    slopes = [1.0, 0.25, 3.5]
    study = Study(tmp_path)
    for place, slope in enumerate(slopes):
        study.write(f"{place}.dcm", VOLUME[place], place, RescaleSlope=f"{slope}")
    expected = VOLUME[:3] * np.array(slopes)[:, None, None]
    check_source(opened(tmp_path), expected[np.newaxis].astype("f4"))


def rle(plane: Array) -> bytes:
    """Compress a plane by run lengths, as pydicom does."""
    facts: dict[str, Any] = {
        "rows": plane.shape[0],
        "columns": plane.shape[1],
        "photometric_interpretation": "MONOCHROME2",
    }
    facts |= {"number_of_frames": 1, "samples_per_pixel": 1}
    facts |= {"bits_allocated": 16, "bits_stored": 16, "pixel_representation": 1}
    return RLELosslessEncoder.encode(plane.tobytes(), **facts)


@pytest.mark.parametrize("syntax", [RLELossless, JPEG2000Lossless])
def test_compressed_slices(tmp_path: Path, syntax: str) -> None:
    """What pydicom decodes is what was compressed; boxes are read in any order of planes."""
    volume = coordinates((1, 3, 40, 50), "<u2" if syntax == JPEG2000Lossless else "<i2")
    study = Study(tmp_path / "scan", syntax=syntax)
    for place, plane in enumerate(volume[0]):
        stream = rle(plane) if syntax == RLELossless else imagecodecs.jpeg2k_encode(plane, level=0, codecformat="j2k")
        study.write(f"{9 - place}.dcm", plane, place, stream=stream)
    source = opened(tmp_path / "scan")
    check_source(source, volume)
    assert source.describe().is_sequential
    np.testing.assert_array_equal(read_box(source, Box((1, 3, 4), (3, 9, 40))), volume[:, 1:3, 3:9, 4:40])
    check_converts(tmp_path / "scan", {("scan", "image"): volume})


def test_a_compression_that_nothing_decodes(tmp_path: Path) -> None:
    """The packages that would are named, before anything is read."""
    study = Study(tmp_path, syntax=JPEGLSLossless)
    for place in range(2):
        study.write(f"{place}.dcm", VOLUME[place], place, stream=imagecodecs.jpegls_encode(VOLUME[place].view("u2")))
    with pytest.raises(UsageError, match=r"JPEG-LS Lossless.*install what decodes it.*pyjpegls"):
        opened(tmp_path)
    for syntax in ("1.2.840.10008.1.2.4.102", "1.2.840.113619.5.2"):  # video, and one of a maker's own
        (tmp_path / syntax).mkdir()
        for place in range(2):
            dataset = study.dataset(VOLUME[place], place)
            dataset.PixelData = pydicom.encaps.encapsulate([b"abcd"])
            dataset["PixelData"].VR = "OB"
            dataset.file_meta.TransferSyntaxUID = pydicom.uid.UID(syntax)
            dataset.save_as(tmp_path / syntax / f"{place}.dcm", implicit_vr=False, little_endian=True)
        with pytest.raises(UsageError, match="no decoder"):
            opened(tmp_path / syntax)


def test_a_tilted_gantry(tmp_path: Path) -> None:
    """Slices that follow each other in another direction than their normal: the affine is sheared and exact."""
    step = (0.0, 0.9, 2.5)
    study = Study(tmp_path, step=step)
    source = opened(study.write_all(VOLUME))
    check_source(source, VOLUME[np.newaxis])
    cube = source.describe()
    matrix = np.diag([-1, -1, 1, 1]) @ np.reshape(cube.patient_affine or (), (4, 4))
    np.testing.assert_allclose(matrix[:3, :3].T, study.steps, atol=1e-9)
    np.testing.assert_allclose(cube.spacing or (), (np.hypot(0.9, 2.5), 0.8, 0.7))
    for place in range(5):
        header = pydicom.dcmread(next(p for p in tmp_path.iterdir() if pydicom.dcmread(p).InstanceNumber == place + 1))
        np.testing.assert_allclose((matrix @ [place, 0, 0, 1])[:3], header.ImagePositionPatient, atol=1e-9)


@settings(deadline=None, max_examples=20)
@given(
    angles=st.tuples(*[st.floats(-3, 3)] * 3),
    edges=st.tuples(*[st.floats(0.05, 9)] * 3),
    origin=st.tuples(*[st.floats(-2000, 2000)] * 3),
    names=st.permutations(range(4)),
)
def test_any_place_is_itks(
    tmp_path_factory: pytest.TempPathFactory,
    angles: tuple[float, ...],
    edges: tuple[float, ...],
    origin: tuple[float, ...],
    names: list[int],
) -> None:
    """Turned, moved and named at will: voxels, spacing and affine are those that ITK has."""
    folder = tmp_path_factory.mktemp("scan")
    turn = np.linalg.qr(np.vander(angles, 3) + np.eye(3) * 5)[0]
    across, down = turn[:, 0], turn[:, 1]
    step = np.cross(across, down) * edges[2]
    study = Study(folder, [*across, *down], edges[:2], origin, step.tolist())
    for place, name in enumerate(names):
        study.write(f"{name}.dcm", VOLUME[place], place)
    source = opened(folder)
    image = itk(folder)
    np.testing.assert_array_equal(read_box(source, Box.whole((4, 4, 6)))[0], VOLUME[:4])
    np.testing.assert_array_equal(sitk.GetArrayFromImage(image), VOLUME[:4])
    check_place(source, image)


def test_the_catalogue_has_its_place(tmp_path: Path) -> None:
    """Spacing and affine arrive, of samples that are cut, too; series below a folder are samples of their own."""
    for name in ("a", "b"):
        Study(tmp_path / "raw" / "patient" / name, TILTED).write_all(VOLUME[:4])
    report = convert(tmp_path / "raw", tmp_path / "out", options=ConvertOptions(split=(2, 2, 3)))
    catalog = Catalog.read(report.catalog)
    assert len(catalog) == 2 * 8
    image = itk(tmp_path / "raw" / "patient" / "b")
    entry = catalog.entry("patient_b_1_0_1", "image")
    assert entry.origin == (2, 0, 3)
    np.testing.assert_allclose(entry.spacing or (), image.GetSpacing()[::-1])
    matrix = np.diag([-1, -1, 1, 1]) @ np.reshape(entry.affine or (), (4, 4))
    np.testing.assert_allclose(matrix[:3, 3], image.TransformIndexToPhysicalPoint((3, 0, 2)), atol=1e-5)


def test_axes_that_the_caller_names(tmp_path: Path) -> None:
    """Slices may be called W."""
    folder = Study(tmp_path).write_all(VOLUME)
    source = opened(folder, axes="WHD")
    check_source(source, VOLUME.transpose(2, 1, 0)[np.newaxis])
    assert source.describe().spacing == pytest.approx((0.7, 0.8, 2.5))


def test_slices_below_a_folder(tmp_path: Path) -> None:
    """A series may be spread over a folder and those below it; hidden files and folders are none of it."""
    study = Study(tmp_path / "scan")
    for place, name in enumerate(("z.dcm", "a/x", "a/b/y.dcm", ".hidden/h.dcm", ".DS.dcm")):
        study.write(name, VOLUME[place], place)
    Study(tmp_path / "scan" / "other").write_all(VOLUME)
    (source,) = open_sources(tmp_path / "scan" / "z.dcm")
    check_source(source, VOLUME[:3][np.newaxis])
    volumes = {("scan", "image"): VOLUME[:3][np.newaxis], ("other", "image"): VOLUME[np.newaxis]}
    check_converts(tmp_path / "scan", volumes)


def test_other_dicom_files_are_passed_over(tmp_path: Path) -> None:
    """Structures and reports beside the slices are no images, and are listed; the one that is named is refused."""
    folder = Study(tmp_path / "scan").write_all(VOLUME)
    plan = Study(folder, kind="1.2.840.10008.5.1.4.1.1.481.3")
    plan.write("RTSTRUCT.dcm", VOLUME[0], 0, Rows=None, Columns=None)
    report = convert(folder, tmp_path / "out")
    assert report.ignored == ("RTSTRUCT.dcm",)
    assert Catalog.read(report.catalog).entry("scan", "image").shape == (1, *VOLUME.shape)
    with pytest.raises(UsageError, match="DICOM without an image"):
        convert(folder / "RTSTRUCT.dcm", tmp_path / "other")


def test_one_file_stands_for_its_series(tmp_path: Path) -> None:
    """Naming a slice converts the volume that it is of."""
    folder = Study(tmp_path / "scan").write_all(VOLUME)
    catalog = Catalog.read(convert(folder / "IM0002.dcm", tmp_path / "out").catalog)
    assert catalog.keys == (("scan", "image"),)
    (found,) = open_sources(folder / "IM0002.dcm")
    check_source(found, VOLUME[np.newaxis])


def test_nothing_of_a_patient_is_kept(tmp_path: Path) -> None:
    """Names stay in the files."""
    folder = Study(tmp_path / "scan").write_all(VOLUME)
    convert(folder, tmp_path / "out")
    assert not any(b"Nobody" in path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    attributes = opened(folder).describe().attributes
    assert attributes["modality"] == "CT"
    assert "Nobody" not in f"{attributes}"


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning looks at each header once, however many slices there are."""
    folder = Study(tmp_path / "scan").write_all(coordinates((1, 20, 2, 2), "<i2")[0])
    calls: list[Path] = []

    def counted(path: Path) -> Header | None:
        calls.append(path)
        return read_header(path)

    monkeypatch.setattr("voxload.convert.sources.medicine.series.read_header", counted)
    convert(folder, tmp_path / "out")
    assert len(calls) == len(set(calls)) == 19


def test_it_is_a_dicom_file_by_its_content(tmp_path: Path) -> None:
    """Without a suffix, too; what has the suffix and no signature is damaged."""
    study = Study(tmp_path / "scan")
    for place in range(3):
        study.write(f"IM{place}", VOLUME[place], place)
    check_converts(tmp_path / "scan", {("scan", "image"): VOLUME[:3][np.newaxis]})
    (tmp_path / "scan" / "IM9.dcm").write_bytes(bytes(200))
    with pytest.raises(DataError, match=r"no \.dcm signature"):
        convert(tmp_path / "scan", tmp_path / "out")
