"""NIfTI images as nibabel writes them."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

from tests.laws.source import Array, check_converts, check_source, coordinates, read_box
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.medicine.nifti import Nifti
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box

AFFINE = np.array([[-2.0, 0, 0, 90], [0, 3, 0, -126], [0, 0, 4, -72], [0, 0, 0, 1]])
KINDS: dict[str, Any] = {".nii": nib.Nifti1Image, ".nii.gz": nib.Nifti1Image, ".hdr": nib.Nifti1Pair}
KINDS |= {".2.nii": nib.Nifti2Image, ".2.nii.gz": nib.Nifti2Image, ".2.hdr": nib.Nifti2Pair, ".hdr.gz": nib.Nifti1Pair}


def _open(path: Path, **hints: Any) -> Source:
    assert Nifti().claims(Probe(path))
    (source,) = Nifti().sources(Probe(path), Hints(**hints))
    return source


def _write(path: Path, volume: Array, *, kind: Any = nib.Nifti1Image) -> Path:
    """Write a (C, D, H, W) volume through nibabel, whose arrays have the axes (x, y, z, t)."""
    path.parent.mkdir(exist_ok=True)
    array = volume.transpose(3, 2, 1, 0)
    image = kind(array[..., 0] if len(volume) == 1 else array, AFFINE, dtype=volume.dtype)
    image.header.set_data_dtype(volume.dtype)
    image.header.set_xyzt_units("mm")
    nib.save(image, path)
    return path


def _save(path: Path, array: Array, kind: Any = nib.Nifti1Image) -> None:
    """Save an array with the axes (x, y, z, t) as it is."""
    nib.save(kind(array, AFFINE), path)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_no_axis_moves(tmp_path: Path, suffix: str, channels: int) -> None:
    """The x of nibabel is W, y H, z D and t the channels, in one file or two, plain or in gzip, of both versions."""
    volume = coordinates((channels, 3, 4, 5), "<i2")
    source = _open(_write(tmp_path / f"brain{suffix}", volume, kind=KINDS[suffix]))
    check_source(source, volume)
    cube = source.describe()
    assert cube.is_sequential == suffix.endswith(".gz")
    stem, is_pair = suffix.removesuffix(".gz"), "hdr" in suffix
    assert [path.name for path in cube.companions] == [f"brain{suffix}".replace("hdr", "img")] * is_pair
    assert (cube.sample, cube.dataset) == (Path(f"brain{stem}").stem, "image")
    if suffix in (".hdr.gz", ".2.nii"):
        check_converts(tmp_path, {(cube.sample, "image"): volume})


@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", ">i2", ">i4", "<u4", ">u8", "<f4", ">f8"])
def test_types_of_either_byte_order(tmp_path: Path, dtype: str) -> None:
    """Every type of number stays what it is; an independent writer packs the header by nifti1.h."""
    volume = coordinates((1, 2, 3, 4), dtype)
    path = tmp_path / "brain.nii"
    path.write_bytes(_header(volume, np.dtype(dtype)) + volume.tobytes())
    check_source(_open(path), volume)


def _header(
    volume: Array, dtype: np.dtype[Any], *, slope: tuple[float, float] = (0, 0), offset: float = 352, dim: Any = None
) -> bytes:
    """Return a header packed by its published layout: sizeof_hdr at 0, dim 40, datatype 70, pixdim 76, magic 344."""
    order = ">" if dtype.str[0] == ">" else "<"
    codes = {"u1": 2, "i2": 4, "i4": 8, "f4": 16, "c8": 32, "f8": 64, "i1": 256, "u2": 512, "u4": 768, "u8": 1280}
    header = bytearray(352)
    struct.pack_into(f"{order}i", header, 0, 348)
    struct.pack_into(f"{order}8h", header, 40, *(dim or (3, *volume.shape[:0:-1], 1, 1, 1, 1)))
    struct.pack_into(f"{order}hh", header, 70, codes[dtype.str[1:]], 8 * dtype.itemsize)
    struct.pack_into(f"{order}11f", header, 76, *([1.0] * 8), offset, *slope)
    header[344:348] = b"n+1\0"
    return bytes(header)


def test_vectors_are_channels(tmp_path: Path) -> None:
    """A fifth axis is the channels where the fourth, time, is one; both at once are refused."""
    volume = coordinates((3, 2, 4, 5), "<f4")
    array, path = volume.transpose(3, 2, 1, 0), tmp_path / "field.nii"
    _save(path, array[:, :, :, np.newaxis])
    check_source(_open(path), volume)
    _save(path, np.stack([array, array], axis=3))
    with pytest.raises(UsageError, match=r"dim \(5, 4, 2, 2, 3\)"):
        _open(path)
    _save(path, array[:, :, 0, 0])
    with pytest.raises(UsageError, match="three spatial axes"):
        _open(path)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize(("dtype", "expected"), [("<i2", "f4"), ("<i4", "f8"), ("<f4", "f4")])
def test_scaled_voxels_become_floats(tmp_path: Path, suffix: str, dtype: str, expected: str) -> None:
    """scl_slope and scl_inter give what nibabel gives, in float32 where that holds every stored number."""
    stored = coordinates((1, 3, 4, 5), dtype)
    content = _header(stored, stored.dtype, slope=(0.25, -1000)) + stored.tobytes()
    path = tmp_path / f"ct{suffix}"
    path.write_bytes(gzip.compress(content) if suffix == ".nii.gz" else content)
    loaded: Any = nib.load(path)
    source = _open(path)
    check_source(source, loaded.get_fdata().transpose(2, 1, 0)[np.newaxis].astype(expected))
    assert source.describe().scratch_bytes >= 4 * 5 * 8


@pytest.mark.parametrize("slope", [0.0, 1.0, float("nan")])
def test_no_scaling_keeps_integers(tmp_path: Path, slope: float) -> None:
    """A slope of 0 or none means no scaling, as nifti1.h says, and 1 changes nothing: integers stay integers."""
    volume = coordinates((1, 2, 3, 4), "<i2")
    (tmp_path / "ct.nii").write_bytes(_header(volume, volume.dtype, slope=(slope, 0)) + volume.tobytes())
    check_source(_open(tmp_path / "ct.nii"), volume)


def test_attributes(tmp_path: Path) -> None:
    """Spacing along D, H and W, the affine, and the directions in which x, y and z run are kept."""
    found = _open(_write(tmp_path / "brain.nii", coordinates((1, 2, 3, 4), "<i2"))).describe().attributes
    assert found == {"spacing": [4.0, 3.0, 2.0], "affine": AFFINE.tolist(), "orientation": "LAS", "units": "mm"}


def test_image_and_label_are_one_sample(tmp_path: Path) -> None:
    """The two files of a case are one sample and two volumes, whether their folder is converted or one above."""
    volume = coordinates((1, 2, 3, 4), "<i2")
    for folder, names in (("case_00001", ("imaging", "segmentation")), ("imagesTr", ("a_0000",)), ("labelsTr", ("a",))):
        for name in names:
            _write(tmp_path / folder / f"{name}.nii.gz", volume + np.int16(len(name)))
    cubes = [_open(path).describe() for path in sorted(tmp_path.glob("*/*"))]
    assert [(cube.sample, cube.dataset) for cube in cubes] == [
        *((".", "imaging"), (".", "segmentation")),
        *(("../a", "image_0000"), ("../a", "label")),
    ]
    kits = {("case_00001", name): volume + np.int16(len(name)) for name in ("imaging", "segmentation")}
    label = {("a", "label"): volume + np.int16(1)}
    check_converts(tmp_path / "case_00001", kits)
    check_converts(tmp_path / "labelsTr", label)
    check_converts(tmp_path, kits | label | {("a", "image_0000"): volume + np.int16(6)})


def test_faults(tmp_path: Path) -> None:
    """Cut files, lost voxels, impossible headers and voxels that are no plain numbers are refused."""
    volume = coordinates((1, 2, 3, 4), "<f4")
    path = _write(tmp_path / "brain.nii", volume)
    os.truncate(path, 352 + 95)
    with pytest.raises(DataError, match=r"brain\.nii: found 447 bytes, expected 448 bytes"):
        _open(path)
    path = _write(tmp_path / "cut.nii.gz", np.random.default_rng(0).random((1, 9, 9, 9)))
    os.truncate(path, path.stat().st_size - 20)
    with pytest.raises(DataError, match=r"cut\.nii\.gz.*truncated"):
        read_box(_open(path), Box.whole((9, 9, 9)))
    path = _write(tmp_path / "pair.hdr", volume, kind=nib.Nifti1Pair)
    (tmp_path / "pair.img").unlink()
    with pytest.raises(NotFoundError, match=r"no pair\.img beside it"):
        _open(path)
    for message, header in (
        ("dim", _header(volume, volume.dtype, dim=(9, 4, 3, 2, 1, 1, 1, 1))),
        ("dim", _header(volume, volume.dtype, dim=(3, 4, 0, 2, 1, 1, 1, 1))),
        ("vox_offset 100", _header(volume, volume.dtype, offset=100)),
    ):
        path.write_bytes(header + volume.tobytes())
        with pytest.raises(DataError, match=message):
            _open(path)
    path.write_bytes(_header(volume, np.dtype("<c8")) + bytes(192))
    with pytest.raises(UsageError, match="complex64"):
        _open(path)


def test_foreign_files_are_not_claimed(tmp_path: Path) -> None:
    """A name alone makes no NIfTI file, nor does a header of Analyze 7.5, which has no signature."""
    path = tmp_path / "brain.nii"
    analyze = _header(np.zeros((1, 2, 3, 4)), np.dtype("<f4"))[:344] + bytes(4)
    for content in (b"", analyze, gzip.compress(analyze), b"NRRD0004\n", bytes(400), b"\x1f\x8b"):
        path.write_bytes(content)
        assert not Nifti().claims(Probe(path))
