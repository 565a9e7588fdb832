"""FITS cubes as astropy writes them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits

from tests.laws.source import Array, check_converts, check_source, coordinates, read_box
from voxload.convert.sources.arrays.fits import Fits
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box


def _open(path: Path, **hints: Any) -> tuple[Source, ...]:
    assert Fits().claims(Probe(path))
    return Fits().sources(Probe(path), Hints(**hints))


def _write(path: Path, array: Array, **header: Any) -> Path:
    fits.PrimaryHDU(array, fits.Header(header)).writeto(path, overwrite=True)
    return path


@pytest.mark.parametrize("dtype", ["u1", ">i2", ">i4", ">i8", ">f4", ">f8", "i1", "u2", "u4", "u8"])
def test_no_axis_moves(tmp_path: Path, dtype: str) -> None:
    """NAXIS1 is W: an array that astropy wrote as (D, H, W) comes out as it was, of every type FITS can hold."""
    volume = coordinates((1, 3, 5, 7), dtype)
    path = _write(tmp_path / "cube.fits", volume[0])
    assert fits.getheader(path)["NAXIS1"] == 7
    (source,) = _open(path)
    check_source(source, volume)
    assert source.describe().dataset == "image"
    if dtype in (">f4", "u2"):
        check_converts(path, {("cube", "image"): volume})


@pytest.mark.parametrize("dtype", ["i1", "u2", "u4", "u8"])
def test_unsigned_integers_stay_exact(tmp_path: Path, dtype: str) -> None:
    """Integers that FITS stores with half their range taken off come out as themselves, up to the largest."""
    info = np.iinfo(dtype)
    volume = np.array([info.min, info.min + 1, info.max // 2, info.max // 2 + 1, info.max - 1, info.max], dtype)
    (source,) = _open(_write(tmp_path / "cube.fits", volume.reshape(1, 2, 3)))
    check_source(source, volume.reshape(1, 1, 2, 3))


@pytest.mark.parametrize(("dtype", "expected"), [(">i2", "f4"), (">i4", "f8"), ("u1", "f4")])
def test_scaled_integers_become_floats(tmp_path: Path, dtype: str, expected: str) -> None:
    """BSCALE and BZERO are worked out in float64 and rounded to a type that holds every stored number."""
    stored = coordinates((1, 3, 4, 5), dtype)
    hdu = fits.PrimaryHDU(stored[0])
    path = tmp_path / "cube.fits"
    hdu.header["BSCALE"], hdu.header["BZERO"] = 0.1, -3.0
    hdu.writeto(path, output_verify="ignore")
    with fits.open(path, mode="update", do_not_scale_image_data=True) as file:
        file[0].header["BSCALE"], file[0].header["BZERO"] = 0.1, -3.0
    (source,) = _open(path)
    check_source(source, (stored * 0.1 - 3.0).astype(expected))
    assert source.describe().scratch_bytes > 0


def test_units_are_volumes(tmp_path: Path) -> None:
    """Each image of three axes is a volume under its EXTNAME; tables and planes are none; some can be chosen."""
    first, second = coordinates((1, 2, 3, 4), ">f4"), coordinates((1, 2, 3, 4), ">i2") + 7
    path = tmp_path / "cubes.fits"
    table = fits.BinTableHDU.from_columns([fits.Column("x", "E", array=np.zeros(3))])
    units = [fits.ImageHDU(first[0], name="DENSITY"), table, fits.ImageHDU(np.zeros((3, 4)), name="MAP")]
    fits.HDUList([fits.PrimaryHDU(), *units, fits.ImageHDU(second[0], name="IONS")]).writeto(path)
    density, ions = _open(path)
    check_source(density, first)
    check_source(ions, second)
    assert [source.describe().dataset for source in _open(path, datasets=("IONS",))] == ["IONS"]
    with pytest.raises(NotFoundError, match=r"no volume 'GAS'.*DENSITY, IONS"):
        _open(path, datasets=("GAS",))


def test_units_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """EXTVER tells images of one EXTNAME apart, as the standard intends; equal versions are refused."""
    images = [fits.ImageHDU(np.zeros((2, 2, 2)), name="SCI", ver=version) for version in (1, 2)]
    path = tmp_path / "cubes.fits"
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(path)
    assert [source.describe().dataset for source in _open(path)] == ["SCI_1", "SCI_2"]
    images[1].header["EXTVER"] = 1
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(path, overwrite=True)
    with pytest.raises(DataError, match="two volumes 'SCI_1'"):
        _open(path)


def test_four_axes(tmp_path: Path) -> None:
    """An axis of one is left out; of four true axes the caller says which one holds the channels."""
    volume = coordinates((2, 3, 4, 5), ">f4")
    path = _write(tmp_path / "cube.fits", volume)
    with pytest.raises(UsageError, match="four axes without names"):
        _open(path)
    (source,) = _open(path, axes="CDHW")
    check_source(source, volume)
    for axis in range(4):
        (source,) = _open(_write(tmp_path / f"{axis}.fits", np.expand_dims(volume[0], axis)))
        check_source(source, volume[:1])


def test_attributes(tmp_path: Path) -> None:
    """Units, world coordinates and checksums are kept; what describes the bytes is not."""
    path = tmp_path / "cube.fits"
    hdu = fits.PrimaryHDU(np.zeros((2, 2, 2), ">f4"), fits.Header({"BUNIT": "K", "CDELT1": 0.5, "REDSHIFT": 3}))
    hdu.header["COMMENT"] = "not this"
    hdu.writeto(path, checksum=True)
    found = dict(_open(path)[0].describe().attributes)
    assert {"CHECKSUM", "DATASUM"} <= set(found)
    assert {name: found[name] for name in found if "SUM" not in name} == {"BUNIT": "K", "CDELT1": 0.5, "REDSHIFT": 3}


def test_blank_voxels_are_refused(tmp_path: Path) -> None:
    """BLANK may be declared, but a voxel that holds it has no value, and none is made up."""
    stored = np.arange(24, dtype=">i2").reshape(2, 3, 4)
    (source,) = _open(_write(tmp_path / "cube.fits", stored, BLANK=-1))
    check_source(source, stored[np.newaxis])
    (source,) = _open(_write(tmp_path / "cube.fits", stored, BLANK=17))
    assert read_box(source, Box((0, 0, 0), (1, 3, 4))).max() == 11
    with pytest.raises(DataError, match=r"cube\.fits.*1 voxels.*BLANK = 17"):
        read_box(source, Box.whole((2, 3, 4)))


def test_compressed_files_are_refused(tmp_path: Path) -> None:
    """FITS in gzip and compressed images are known, and refused with the program that unpacks them."""
    path = _write(tmp_path / "cube.fits", np.zeros((2, 3, 4), ">f4"))
    (tmp_path / "cube.fits.gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(UsageError, match=r"run gunzip cube\.fits\.gz first"):
        _open(tmp_path / "cube.fits.gz")
    image = fits.CompImageHDU(np.zeros((2, 30, 40), ">i4"), compression_type="RICE_1")
    fits.HDUList([fits.PrimaryHDU(), image]).writeto(tmp_path / "cube.fits.fz")
    with pytest.raises(UsageError, match="funpack"):
        _open(tmp_path / "cube.fits.fz")


def test_faults(tmp_path: Path) -> None:
    """Cut files, appended bytes, headers without an end and files without a cube are refused; padding may lack."""
    path = _write(tmp_path / "cube.fits", np.ones((3, 4, 5), ">f4"))
    os.truncate(path, 2880 + 240)
    check_source(_open(path)[0], np.ones((1, 3, 4, 5), "f4"))
    os.truncate(path, 2880 + 239)
    with pytest.raises(DataError, match=r"cube\.fits: found 3119 bytes, expected 5760 bytes"):
        _open(path)
    _write(path, np.ones((3, 4, 5), ">f4"))
    path.write_bytes(path.read_bytes() + b"x" * 100)
    with pytest.raises(DataError, match="100 bytes after unit 0 that are no header"):
        _open(path)
    path.write_bytes(_write(path, np.ones((3, 4, 5), ">f4")).read_bytes()[:200])
    with pytest.raises(DataError, match=r"cube\.fits"):
        _open(path)
    with pytest.raises(UsageError, match="no image of three or four axes"):
        _open(_write(path, np.ones((4, 5))))


def test_foreign_files_are_not_claimed(tmp_path: Path) -> None:
    """A name alone makes no FITS file."""
    path = tmp_path / "cube.fits"
    for content in (b"SIMPLE", b"", gzip.compress(b"SIMPLE = F"), b"\x1f\x8bnothing"):
        path.write_bytes(content)
        assert not Fits().claims(Probe(path))
