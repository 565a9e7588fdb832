"""DICOM files that make no volume, are damaged, or claim what they do not hold: an error that says which and why."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom.dataset import Dataset
from pydicom.uid import DeflatedExplicitVRLittleEndian, JPEG2000Lossless, JPEGBaseline8Bit

from tests.convert.sources.dicomfiles import AXIAL, TILTED, Study
from tests.laws.source import coordinates, read_box
from voxload.convert import ConvertOptions, convert, plan_conversion
from voxload.convert.sources import open_sources
from voxload.convert.sources.medicine.frames import stream_extents
from voxload.errors import DataError, UsageError, VoxloadError
from voxload.geometry import Box

VOLUME = coordinates((1, 8, 4, 6), "<i2")[0]


def looked_at(folder: Path) -> Any:
    """Return the sources that a folder's first slice belongs to."""
    return open_sources(min(path for path in folder.rglob("*") if path.is_file()))


@pytest.mark.parametrize(("missing", "low", "high"), [([3], 2, 4), ([2, 3], 1, 4), ([1, 4, 5], 3, 6)])
@pytest.mark.parametrize("orientation", [AXIAL, TILTED])
def test_a_gap_is_named(
    tmp_path: Path, missing: list[int], low: int, high: int, orientation: tuple[float, ...]
) -> None:
    """The slices on both sides of the widest, how far they are apart, and how far the others are."""
    study = Study(tmp_path / "scan", orientation)
    for place in set(range(8)) - set(missing):
        study.write(f"s{place}.dcm", VOLUME[place], place)
    words = rf"a gap: {2.5 * (high - low):g} mm between s{low}.dcm at .* and s{high}.dcm at .*expected 2.5 mm"
    with pytest.raises(DataError, match=words):
        convert(tmp_path / "scan", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@settings(deadline=None, max_examples=25)
@given(count=st.integers(4, 12), data=st.data())
def test_no_gap_is_missed(tmp_path_factory: pytest.TempPathFactory, count: int, data: st.DataObject) -> None:
    """Whichever slices between the first and the last are missing, unless every second one is, and so on."""
    missing = data.draw(st.sets(st.integers(1, count - 2), min_size=1, max_size=count - 3))
    left = sorted(set(range(count)) - missing)
    folder = tmp_path_factory.mktemp("scan")
    study = Study(folder)
    for place in left:
        study.write(f"{place:02}.dcm", VOLUME[0], place)
    if len(set(np.diff(left))) == 1:
        assert looked_at(folder)
        return
    with pytest.raises(DataError, match="a gap"):
        looked_at(folder)


def _study(tmp_path: Path, **changed: Any) -> Path:
    """Write a series of four slices of which the third is changed."""
    study = Study(tmp_path / "scan")
    for place in range(4):
        study.write(f"{place}.dcm", VOLUME[place], place, **(changed if place == 2 else {}))
    return tmp_path / "scan"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"ImagePositionPatient": [-120.5, 33.25, -697.5]},
            r"2.dcm: found \(-120.5, 33.25, -697.5\), the place of 1.dcm",
        ),
        ({"ImagePositionPatient": [-120.1, 33.25, -695]}, r"2.dcm: found .* voxels beside the line"),
        ({"ImagePositionPatient": [-120.5, 33.25, -695.6]}, "a gap: 3.1 mm between 2.dcm"),
        ({"ImagePositionPatient": None}, "ImagePositionPatient: nothing, expected 3 numbers"),
        (
            {"ImageOrientationPatient": [1, 0, 0, 0, 0.8, 0.6]},
            r"2.dcm: found orientation .*as 0.dcm of the same series",
        ),
        ({"ImageOrientationPatient": [1, 0, 0]}, "ImageOrientationPatient: '1.* expected 6 numbers"),
        ({"PixelSpacing": [0.8, 0.75]}, "found pixel spacing"),
        ({"PixelSpacing": None}, "PixelSpacing: nothing, expected 2 numbers"),
        ({"FrameOfReferenceUID": "1.2.4"}, "found frame of reference 1.2.4"),
        ({"PixelRepresentation": 0}, "found type <u2, expected <i2"),
        ({"RescaleSlope": "0"}, "RescaleSlope 0"),
        ({"Rows": 6, "Columns": 4}, r"rows and columns \(6, 4\)"),
        ({"Rows": 5}, "found 48 bytes of pixels, expected 60 for 5 rows of 6 pixels of 2 bytes"),
        ({"Rows": 65535, "Columns": 65535}, "found 48 bytes of pixels, expected 8589672450"),
        ({"Rows": 0}, "0 rows"),
        ({"Columns": None}, "Columns: nothing"),
        ({"BitsAllocated": None}, "BitsAllocated: nothing"),
    ],
)
def test_a_slice_that_is_not_as_the_others(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    """It is named, and what it should be."""
    folder = _study(tmp_path, **changed)
    with pytest.raises(DataError, match=words):
        looked_at(folder)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"NumberOfFrames": 12}, "12 frames in one file"),
        ({"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB"}, "colour, 3 samples a pixel, RGB"),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "colour"),
        ({"BitsAllocated": 12, "BitsStored": 12, "HighBit": 11}, "12 bits stored of 12"),
        ({"BitsStored": 12, "HighBit": 15}, "12 bits stored of 16, the highest at 15"),
        ({"ModalityLUTSequence": [Dataset()]}, "values by a table"),
    ],
)
def test_what_is_no_slice_of_numbers(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    """Colour, many frames and tables are refused as such."""
    folder = _study(tmp_path, **changed)
    with pytest.raises(UsageError, match=f"2.dcm: found {words}"):
        looked_at(folder)


def test_an_enhanced_image(tmp_path: Path) -> None:
    """What has its places in groups of frames is one of many frames, were it one."""
    groups = [Dataset() for _ in range(3)]
    folder = Study(tmp_path / "scan").write_all(
        VOLUME, ImagePositionPatient=None, NumberOfFrames=1, PerFrameFunctionalGroupsSequence=groups
    )
    with pytest.raises(UsageError, match="frames in one file"):
        looked_at(folder)


def test_pixels_that_are_floats(tmp_path: Path) -> None:
    """They are another element than the pixels of slices."""
    study = Study(tmp_path)
    for place in range(2):
        dataset = study.dataset(VOLUME[place], place, BitsAllocated=32)
        dataset.FloatPixelData = VOLUME[place].astype("<f4").tobytes()
        dataset.save_as(tmp_path / f"{place}.dcm", enforce_file_format=True)
    with pytest.raises(UsageError, match="pixels that are floats"):
        looked_at(tmp_path)


def test_two_series_in_a_folder(tmp_path: Path) -> None:
    """Files of both are named; nothing is chosen."""
    folder = Study(tmp_path / "scan", series="1.2.3").write_all(VOLUME)
    Study(folder, series="1.2.4").write("scout", VOLUME[0], 0)
    with pytest.raises(UsageError, match=r"two series, such as IM0000.dcm of '1.2.3' and scout of '1.2.4'"):
        convert(folder, tmp_path / "out")


def test_one_series_in_two_folders(tmp_path: Path) -> None:
    """Halves would both be volumes without a gap."""
    study = Study(tmp_path / "raw", series="1.2.3")
    for place in range(8):
        study.write(f"{'ab'[place // 4]}/{place}.dcm", VOLUME[place], place)
    with pytest.raises(UsageError, match=r"series 1.2.3: found slices in two folders, that of a/0.dcm and .* b/4.dcm"):
        convert(tmp_path / "raw", tmp_path / "out")


def test_a_slice_alone(tmp_path: Path) -> None:
    """Two axes are no cube."""
    Study(tmp_path / "scan").write("a.dcm", VOLUME[0], 0)
    with pytest.raises(UsageError, match="one slice of its series"):
        looked_at(tmp_path)


def test_without_a_series(tmp_path: Path) -> None:
    """Nothing tells which slices belong together."""
    folder = Study(tmp_path / "scan", series="").write_all(VOLUME)
    with pytest.raises(DataError, match="SeriesInstanceUID: nothing"):
        looked_at(folder)


@pytest.mark.parametrize("keep", [140, 250, 350, 450, 550, -60, -40, -1])
def test_a_slice_that_is_cut_short(tmp_path: Path, keep: int) -> None:
    """Wherever it ends, it is no report: the volume is refused."""
    folder = Study(tmp_path / "scan").write_all(VOLUME)
    path = folder / "IM0003.dcm"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"IM0003\.dcm"):
        convert(folder, tmp_path / "out")


def test_a_slice_that_changes_meanwhile(tmp_path: Path) -> None:
    """Pixels that are gone when they are read are told."""
    folder = Study(tmp_path / "scan").write_all(VOLUME)
    (source,) = looked_at(folder)
    path = folder / "IM0003.dcm"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"IM0003\.dcm: found the end of the file"):
        read_box(source, Box.whole((8, 4, 6)))


@pytest.mark.long
def test_a_deflated_file(tmp_path: Path) -> None:
    """A few bytes that would become any number are not inflated."""
    study = Study(tmp_path, syntax=DeflatedExplicitVRLittleEndian)
    path = study.write("a.dcm", VOLUME[0], 0)
    content = path.read_bytes()
    squeezer = zlib.compressobj(wbits=-15)
    path.write_bytes(content[:600] + squeezer.compress(bytes(2**27)) + squeezer.flush())
    with pytest.raises(UsageError, match="deflates the whole file"):
        looked_at(tmp_path)


def _peak(folder: Path) -> int:
    """Return the bytes that a refusal took."""
    tracemalloc.start()
    try:
        with pytest.raises(VoxloadError):
            looked_at(folder)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("element", ["<HH2sHI", pytest.param("<HH2sH", marks=pytest.mark.long)])
def test_an_element_of_any_length(tmp_path: Path, element: str) -> None:
    """A length of 4 GiB in a file of as many bytes, all of them holes, is not read."""
    path = Study(tmp_path).write("a.dcm", VOLUME[0], 0)
    content = path.read_bytes()
    place = content.index(b"\x08\x00\x16\x00UI")
    claim = (0x0008, 0x0016, b"UN", 0, 2**32 - 2) if element.endswith("I") else (0x0008, 0x0016, b"UI", 2**16 - 2)
    path.write_bytes(content[:place] + struct.pack(element, *claim))
    with path.open("r+b") as file:
        file.truncate(2**32)
    Study(tmp_path).write("b.dcm", VOLUME[0], 0)
    assert _peak(tmp_path) < 2**26


def test_huge_claims_of_compressed_slices(tmp_path: Path) -> None:
    """More pixels than the limit, or than the stream says, are refused before they are decoded."""
    study = Study(tmp_path / "a", syntax=JPEG2000Lossless)
    stream = imagecodecs.jpeg2k_encode(VOLUME[0].view("<u2"), level=0, codecformat="j2k")
    for place in range(2):
        study.write(f"{place}.dcm", VOLUME[0], place, stream=stream, Rows=65535, Columns=65535)
    with pytest.raises(DataError, match=r"a compressed slice of 8589672450 bytes.*VOXLOAD_MAX_FRAME"):
        looked_at(tmp_path / "a")
    assert _peak(tmp_path / "a") < 2**24
    study = Study(tmp_path / "b", syntax=JPEG2000Lossless)
    for place in range(2):
        study.write(f"{place}.dcm", VOLUME[0], place, stream=stream, Rows=8192, Columns=8192)
    (source,) = looked_at(tmp_path / "b")
    with pytest.raises(DataError, match=r"a stream of \(rows, columns, samples\) \(4, 6, 1\)"):
        read_box(source, Box((0, 0, 0), (1, 1, 1)))
    with pytest.raises(UsageError, match="decoding the source's own chunks"):
        plan_conversion(tmp_path / "b", tmp_path / "out", ConvertOptions(max_memory=2**29))


def test_streams_say_their_extents() -> None:
    """As their encoders were told; what is none of the two, or ends before, says nothing."""
    plane = np.zeros((7, 9), "u1")
    assert stream_extents(imagecodecs.jpeg8_encode(plane)) == (7, 9, 1)
    assert stream_extents(imagecodecs.jpeg8_encode(np.zeros((7, 9, 3), "u1"))) == (7, 9, 3)
    assert stream_extents(imagecodecs.jpegls_encode(plane)) == (7, 9, 1)
    assert stream_extents(imagecodecs.ljpeg_encode(plane.astype("u2"))) == (7, 9, 1)
    assert stream_extents(imagecodecs.jpeg2k_encode(plane, level=0, codecformat="j2k")) == (7, 9, 1)
    for stream in (b"", b"\xff\xd8", b"\xff\xd8\xff\xe0\xff\xff", b"RLE"):
        assert stream_extents(stream) is None


def test_a_damaged_stream(tmp_path: Path) -> None:
    """What no decoder takes is told with the file."""
    study = Study(tmp_path, syntax=JPEGBaseline8Bit)
    plane = np.zeros((4, 6), "u1")
    stream = imagecodecs.jpeg8_encode(plane)
    for place in range(2):
        study.write(f"{place}.dcm", plane, place, stream=stream if place else stream[: len(stream) // 2])
    (source,) = looked_at(tmp_path)
    with pytest.raises(DataError, match=r"0\.dcm"):
        read_box(source, Box((0, 0, 0), (1, 4, 6)))
    np.testing.assert_array_equal(read_box(source, Box((1, 0, 0), (2, 4, 6)))[0, 0], plane)


def test_more_stream_than_pixels(tmp_path: Path) -> None:
    """A stream of many times what it is of is none."""
    study = Study(tmp_path, syntax=JPEGBaseline8Bit)
    for place in range(2):
        study.write(f"{place}.dcm", np.zeros((4, 6), "u1"), place, stream=bytes(2**17))
    with pytest.raises(DataError, match="bytes of compressed pixels, expected fragments"):
        looked_at(tmp_path)


def test_pixels_of_another_syntax(tmp_path: Path) -> None:
    """Fragments where plain pixels should be are not taken for pixels."""
    study = Study(tmp_path)
    for place in range(2):
        path = study.write(f"{place}.dcm", VOLUME[place], place)
        content = bytearray(path.read_bytes())
        length = content.index(b"\xe0\x7f\x10\x00OW") + 8
        content[length : length + 4] = b"\xff" * 4
        path.write_bytes(content)
    with pytest.raises(DataError, match="bytes of pixels, expected 48"):
        looked_at(tmp_path)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_damage_is_an_error_or_does_no_harm(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bytes of a header that are written over never end in anything but an error of ours, or a volume."""
    folder = tmp_path_factory.mktemp("scan")
    study = Study(folder, series="1.2.3")
    for place in range(3):
        study.write(f"{place}.dcm", VOLUME[place], place)
    path = folder / "1.dcm"
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(132, len(content) - 49))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with suppress(VoxloadError):
        for source in open_sources(folder / "0.dcm"):
            read_box(source, Box.whole(source.describe().volume_shape[1:]))
