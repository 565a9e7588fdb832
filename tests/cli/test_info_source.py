"""``voxload info`` of raw files: what a conversion would find in them, in any format, and their central planes."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import nibabel as nib
import numpy as np
import numpy.typing as npt
import pytest
from astropy.io import fits
from matplotlib.image import imread

from tests.convert.gridding.snapshots import write_binary
from tests.laws.source import coordinates
from voxload.cli.inspect import planes as info_planes
from voxload.cli.inspect.planes import Cube, central_planes
from voxload.cli.main import run
from voxload.convert import Hints, convert
from voxload.convert.sources import Source, open_sources
from voxload.convert.sources.arrays.hdf5targets import COSMOLOGY
from voxload.geometry import Box
from voxload.pictures.thin import SCREEN
from voxload.readers import Volume

SHAPE = (6, 8, 10)
_CRC_DELTA = 0xA282EAD8


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _cube() -> npt.NDArray[Any]:
    return np.arange(6 * 8 * 10, dtype="<f4").reshape(SHAPE)


def _write_fits(path: Path) -> Path:
    fits.PrimaryHDU(_cube(), fits.Header({"BUNIT": "K", "REDSHIFT": 0.5})).writeto(path)
    return path


def _write_nifti(path: Path) -> Path:
    kind: Any = nib.Nifti1Image
    nib.save(kind(_cube().T.copy(), np.eye(4)), path)
    return path


def _write_npz(path: Path) -> Path:
    np.savez_compressed(path, density=_cube(), temperature=_cube() + 1)
    return path


def _write_universe(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        file["full"] = coordinates((4, 8, 8, 8), "<i2").transpose(1, 2, 3, 0)
        file["unitPar"] = np.linspace(-1, 1, 4)
    return path


def test_a_fits_cube_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that no reader reads shows its cube: sample, dataset, extents, axes, type and attributes."""
    path = _write_fits(tmp_path / "run7.fits")
    found = _json(["info", str(path)], capsys)
    assert (found["source"], found["samples"], found["ignored"]) == ("FITS", 1, [])
    (cube,) = found["cubes"]
    assert (cube["sample"], cube["dataset"], cube["part"]) == ("run7", "image", "")
    assert (cube["shape"], cube["axes"], cube["dtype"]) == ([1, *SHAPE], "DHW", "<f4")
    assert (cube["decoded_bytes"], cube["is_sequential"]) == (_cube().nbytes, False)
    assert cube["attributes"]["REDSHIFT"] == 0.5
    assert "chunks" not in found
    assert run(["info", str(path)]) == 0
    text = capsys.readouterr().out
    assert "1 x 6 x 8 x 10" in text
    assert "REDSHIFT=0.5" in text


def test_volumes_of_one_file_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several volumes of a file are all shown, and --dataset chooses one."""
    path = _write_npz(tmp_path / "x.npz")
    found = _json(["info", str(path)], capsys)
    assert [(cube["dataset"], cube["is_sequential"]) for cube in found["cubes"]] == [
        ("density", True),
        ("temperature", True),
    ]
    (one,) = _json(["info", str(path), "--dataset", "temperature"], capsys)["cubes"]
    assert one["dataset"] == "temperature"
    assert run(["info", str(path), "--dataset", "velocity"]) == 2
    assert "velocity" in capsys.readouterr().err


@pytest.mark.long
def test_cubes_beyond_some_tens_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a file of 1000 cubes the first thirty are shown and the rest counted; JSON has all, and --part chooses."""
    path = tmp_path / "Grids_Mtot_IllustrisTNG_LH_4_z=0.0.npy"
    np.save(path, np.arange(1000 * 64, dtype="<f4").reshape(1000, 4, 4, 4))
    assert run(["info", str(path)]) == 0
    text = capsys.readouterr().out
    assert "1000, of 1000 samples" in text
    assert "and 970 more" in text
    assert text.count("1x4x4x4") == 30
    assert text.count("suite=") == 1  # what all have stands once
    found = _json(["info", str(path)], capsys)
    assert len(found["cubes"]) == found["samples"] == 1000
    (one,) = _json(["info", str(path), "--part", "007"], capsys)["cubes"]
    assert one["part"] == "007"
    assert one["sample"] == "IllustrisTNG_LH_4_z=0.0_007"
    assert run(["info", str(path), "--part", "1000"]) == 2
    assert "part '1000'" in capsys.readouterr().err


def _masked(data: bytes) -> bytes:
    value = google_crc32c.value(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + _CRC_DELTA) & 0xFFFFFFFF)


def _field(number: int, content: bytes) -> bytes:
    length, size = b"", len(content)
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def _record(volume: npt.NDArray[Any], targets: npt.NDArray[Any]) -> bytes:
    """Return a record with an Example of features x and y, made of the protocol buffers' own bytes."""
    voxels = _field(1, _field(1, volume.transpose(1, 2, 3, 0).tobytes()))
    floats = _field(2, _field(1, targets.astype("<f4").tobytes()))
    features = [_field(1, _field(1, name) + _field(2, value)) for name, value in ((b"x", voxels), (b"y", floats))]
    data = _field(1, b"".join(features))
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def test_records_show_their_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each record of a compressed TFRecord file is a cube with targets of its own."""
    targets = [np.array([number, 0.25, -0.5, 1.0]) for number in range(3)]
    volume = coordinates((4, 4, 4, 4), "<i2")
    (tmp_path / "x.tfrecord.gz").write_bytes(gzip.compress(b"".join(_record(volume, one) for one in targets)))
    call = ["info", str(tmp_path / "x.tfrecord.gz")]
    found = _json(call, capsys)
    assert [cube["targets"] for cube in found["cubes"]] == [dict(zip(COSMOLOGY, one, strict=True)) for one in targets]
    assert [cube["axes"] for cube in found["cubes"]] == ["DHWC"] * 3
    assert run([*call, "--part", "2"]) == 0
    assert "omega_m=2" in capsys.readouterr().out


def test_a_raw_universe_shows_storage_and_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What readers read and a conversion takes is shown as both."""
    found = _json(["info", str(_write_universe(tmp_path / "u.hdf5"))], capsys)
    assert (found["format"], found["source"], found["chunks"]) == ("HDF5", "ExaLearn cosmoUniverse", None)
    assert found["cubes"][0]["targets"]["omega_m"] == -1.0


def test_a_converted_volume_is_no_raw_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of what voxload converted itself nothing is said as of a raw file."""
    np.save(tmp_path / "x.npy", _cube())
    convert(tmp_path / "x.npy", tmp_path / "out")
    found = _json(["info", str(tmp_path / "out/x.zarr")], capsys)
    assert found["format"] == "Zarr v3"
    assert "cubes" not in found


def test_what_only_readers_read_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A volume that readers read and a conversion refuses is shown, with the refusal."""
    path = _write_universe(tmp_path / "u.hdf5")
    with h5py.File(path, "r+") as file:
        file["unitPar"][0] = np.nan
    found = _json(["info", str(path), "--from", "FITS", "--axes", "DHWC"], capsys)
    assert found["shape"] == [4, 8, 8, 8]
    assert "expected FITS" in found["refusal"]
    assert "cubes" not in found


def test_a_folder_shows_its_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder shows the samples that a conversion would make of it, and the files that are none."""
    for number in range(3):
        _write_fits(tmp_path / f"run{number}.fits")
    (tmp_path / "notes.txt").write_text("no cube")
    found = _json(["info", str(tmp_path)], capsys)
    assert [cube["sample"] for cube in found["cubes"]] == ["run0", "run1", "run2"]
    assert found["ignored"] == ["notes.txt"]
    (one,) = _json(["info", str(tmp_path), "--sample", "run1"], capsys)["cubes"]
    assert one["path"].endswith("run1.fits")


def test_headerless_files_in_fortran_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What readers cannot read of headerless binary, a memory order and a header, is shown as its source."""
    (tmp_path / "x.raw").write_bytes(b"head" + _cube().tobytes("F"))
    words = ["--shape", "6,8,10", "--dtype", "<f4", "--order", "F", "--header-bytes", "4"]
    found = _json(["info", str(tmp_path / "x.raw"), *words], capsys)
    (cube,) = found["cubes"]
    assert (found["source"], cube["shape"], cube["axes"]) == ("headerless binary", [1, *SHAPE], "WHD")


def test_ranks_need_a_stored_volume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What ranks would read of a file that none can read boxes of is refused with the way out."""
    assert run(["info", str(_write_fits(tmp_path / "x.fits")), "--spatial", "2,2,2"]) == 2
    assert "voxload convert" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["nothing.fits"], ["notes.txt"], ["cut.npz"]])
def test_what_is_no_source_is_refused(tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A missing, a foreign and a damaged file end with one line and no picture."""
    (tmp_path / "notes.txt").write_text("no cube")
    whole = _write_npz(tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    assert run(["info", str(tmp_path / words[0]), "--plot", str(tmp_path / "p.png")]) in (1, 2)
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "p.png").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["x.nii.gz", "u.hdf5", *(pytest.param(name, marks=pytest.mark.long) for name in ("x.fits", "x.npz"))]
)
def test_a_picture_is_drawn_of_any_format(tmp_path: Path, name: str) -> None:
    """--plot draws three panels that are not empty."""
    write = {"x.fits": _write_fits, "x.nii.gz": _write_nifti, "x.npz": _write_npz, "u.hdf5": _write_universe}[name]
    assert run(["info", str(write(tmp_path / name)), "--plot", str(tmp_path / "p.png")]) == 0
    thirds = np.array_split(imread(tmp_path / "p.png")[..., :3], 3, axis=1)
    assert all(third.std() > 0.1 for third in thirds)


def _source(path: Path, axes: str | None = None) -> Source:
    return open_sources(path, Hints(axes))[0]


class _Watched:
    """A source's reading with what was asked of it."""

    def __init__(self, source: Source) -> None:
        self.cube = Cube.of_source(source.describe())
        self.boxes: list[Box] = []
        self.sizes: list[int] = []
        with source.open() as read_into:

            def read(box: Box, out: Volume) -> None:
                self.boxes.append(box)
                self.sizes.append(out.nbytes)
                read_into(box, out)

            self.planes = central_planes(self.cube, read).planes


def _check_planes(planes: Sequence[Volume], volume: npt.NDArray[Any]) -> None:
    for axis, plane in enumerate(planes):
        np.testing.assert_array_equal(plane, volume.take(volume.shape[axis] // 2, axis))


@pytest.mark.parametrize("band", [1, 256, 2**24])
@pytest.mark.parametrize("axes", ["CDHW", "DHWC", "WHDC", "HCWD"])
def test_planes_of_any_order_of_axes(tmp_path: Path, axes: str, band: int, *, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planes are those of channel 0 through the centre; three planes are read, in parts of bounded size."""
    volume = coordinates((2, *SHAPE))
    np.save(tmp_path / "x.npy", volume.transpose(["CDHW".index(axis) for axis in axes]))
    monkeypatch.setattr(info_planes, "BAND_BYTES", band)
    found = _Watched(_source(tmp_path / "x.npy", axes))
    _check_planes(found.planes, volume[0])
    assert sum(found.sizes) == (6 * 8 + 6 * 10 + 8 * 10) * 2 * volume.itemsize
    assert max(found.sizes) <= max(band, 10 * 2 * volume.itemsize)


@pytest.mark.parametrize("band", [1, 1000, 2**24])
def test_planes_of_a_compressed_stream(tmp_path: Path, band: int, *, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is read once, forwards, whole planes at a time and never as a whole where it is large."""
    volume = coordinates((1, *SHAPE))[0]
    np.savez_compressed(tmp_path / "x.npz", x=volume)
    monkeypatch.setattr(info_planes, "BAND_BYTES", band)
    found = _Watched(_source(tmp_path / "x.npz"))
    _check_planes(found.planes, volume)
    starts = [box.start[0] for box in found.boxes]
    assert starts == sorted(set(starts))
    assert sum(found.sizes) == volume.nbytes
    assert max(found.sizes) <= max(band, volume[0].nbytes)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("band", [4096, 2**24])
def test_large_planes_are_thinned(tmp_path: Path, suffix: str, band: int, *, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an edge longer than a screen every so many-th voxel is shown, from the first on."""
    volume = coordinates((1, 1030, 3, 2100), "<u2")[0]
    path = tmp_path / f"x{suffix}"
    np.save(path, volume) if suffix == ".npy" else np.savez_compressed(path, x=volume)
    monkeypatch.setattr(info_planes, "BAND_BYTES", band)
    found = _Watched(_source(path))
    for plane, expected in zip(
        found.planes, (volume[515, :, ::3], volume[::2, 1, ::3], volume[::2, :, 1050]), strict=True
    ):
        np.testing.assert_array_equal(plane, expected)
    assert max(max(plane.shape) for plane in found.planes) <= SCREEN


def test_particles_are_told_from_foreign_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A binary snapshot is no cube, and the message says what makes one of it."""
    write_binary(tmp_path / "snap_007", {1: (np.random.default_rng(0).random((9, 3)), 0.5)})
    assert run(["info", str(tmp_path / "snap_007")]) == 2
    assert "particles, not a cube" in capsys.readouterr().err
