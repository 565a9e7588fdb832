"""convert --verify: every stored voxel is compared with its source, bit by bit, and the first that differs is named."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import processes
from voxload.catalog.table import Catalog
from voxload.cli.main import run
from voxload.convert import Compression, ConvertOptions, Hints, Packing, Progress, StoredFormat, convert
from voxload.convert.plan.tiles import LIBRARY_BYTES, jobs_in_memory
from voxload.convert.write.verifying import first_difference
from voxload.errors import DataError

FORMATS = list(StoredFormat)
SHAPE = (12, 10, 18)
VOXELS = 12 * 10 * 18
ROOM = 2**24
CHILD = """
import sys
from pathlib import Path
from voxload.convert import ConvertOptions
from voxload.convert.plan.planning import plan_volumes
from voxload.convert.write.verifying import verify_volume
src, dst, allowed = sys.argv[1:]
def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))
plan = plan_volumes(Path(src), Path(dst), ConvertOptions(max_memory=int(allowed), workers=1))
warm, volume = plan.volumes
verify_volume(warm, advance=lambda _: None)
Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS")
verified = verify_volume(volume, advance=lambda _: None)
print(verified, status("VmHWM") - before)
"""
"""Compares the second of two volumes, and says by how much memory grew at most meanwhile."""


def _cube(dtype: str = "<i4") -> npt.NDArray[Any]:
    return np.arange(VOXELS).astype(dtype).reshape(SHAPE)


def _flip(volume: Path, place: tuple[int, ...], dataset: str = "volume") -> None:
    """Change one stored voxel through the format's own library, which writes its chunk with a checksum that fits."""
    if volume.is_dir():
        array = zarr.open_array(volume / dataset, mode="r+")
        array[place] = np.asarray(array[place]) + 1
        return
    with h5py.File(volume, "r+") as file:
        file[dataset][place] += 1


@pytest.mark.parametrize("stored", FORMATS)
def test_a_sound_conversion_is_compared_whole(tmp_path: Path, stored: StoredFormat) -> None:
    """Every voxel is compared, after the conversion and again when there is nothing left to convert."""
    np.save(tmp_path / "x.npy", _cube())
    options = ConvertOptions(format=stored, chunks=(4, 5, 8), verify=True)
    told: list[Progress] = []
    wanted: tuple[tuple[str, ...], ...] = ((), ("x",))
    for skipped in wanted:
        report = convert(tmp_path / "x.npy", tmp_path / "out", options=options, progress=told.append)
        assert (report.skipped, report.verified, report.is_catalogued) == (skipped, VOXELS, True)
    assert told[-1].bytes_done == told[-1].bytes_total == _cube().nbytes
    assert convert(tmp_path / "x.npy", tmp_path / "out", options=ConvertOptions(format=stored)).verified == 0


@pytest.mark.parametrize("stored", FORMATS)
def test_a_flipped_voxel_with_valid_checksums_is_found(tmp_path: Path, stored: StoredFormat) -> None:
    """A stored voxel that is another one, in a chunk that every checksum calls sound, is named with both values."""
    np.save(tmp_path / "x.npy", _cube("<i2"))
    options = ConvertOptions(format=stored, chunks=(4, 5, 8), compression=Compression.NONE, verify=True)
    convert(tmp_path / "x.npy", tmp_path / "out", options=options)
    _flip(tmp_path / f"out/x{stored.suffix}", (0, 7, 3, 11))
    expected = int(_cube()[7, 3, 11])
    with pytest.raises(DataError) as caught:
        convert(tmp_path / "x.npy", tmp_path / "out", options=options)
    message = str(caught.value)
    assert "sample 'x'" in message
    assert "(0, 7, 3, 11)" in message
    assert f"found {expected + 1} " in message
    assert f"expected {expected} " in message


def test_a_source_that_changed_unnoticed_is_found(tmp_path: Path) -> None:
    """A source with other voxels than were converted, of the same size and time, is no longer its conversion."""
    path = tmp_path / "x.npy"
    np.save(path, _cube())
    options = ConvertOptions(verify=True, compression=Compression.LZ4)  # which the other voxels might change
    convert(path, tmp_path / "out", options=options)
    before = path.stat()
    changed = _cube()
    changed[-1, -1, -1] = -1
    np.save(path, changed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(DataError, match=r"\(0, 11, 9, 17\).*found 2159 .*expected -1 .*x\.npy"):
        convert(path, tmp_path / "out", options=options)


def test_a_source_that_changes_meanwhile_is_called_that(tmp_path: Path) -> None:
    """A source that is written to while it is compared is to blame, and not what is stored of it."""
    path = tmp_path / "x.npy"
    np.save(path, _cube())

    def change(told: Progress) -> None:
        if told.sample.endswith("verified"):
            os.utime(path, ns=(1, 1))

    with pytest.raises(DataError, match=r"x\.npy: found 8768 bytes changed at 1 ns"):
        convert(path, tmp_path / "out", options=ConvertOptions(verify=True), progress=change)
    assert not (tmp_path / "out/catalog.parquet").exists()


@pytest.mark.parametrize("stored", FORMATS)
def test_windows_of_cut_cubes_are_compared(tmp_path: Path, stored: StoredFormat) -> None:
    """Of a cube that was cut into samples each is compared, and a difference is in the sample's own indices."""
    np.save(tmp_path / "x.npy", _cube())
    options = ConvertOptions(
        format=stored, split=(6, 5, 9), chunks=(3, 5, 9), compression=Compression.NONE, verify=True
    )
    report = convert(tmp_path / "x.npy", tmp_path / "out", options=options)
    assert (len(report.converted), report.verified) == (8, VOXELS)
    _flip(tmp_path / f"out/x{stored.suffix}", (0, 7, 9, 3))
    with pytest.raises(DataError, match=r"sample 'x_1_1_0'.*\(0, 1, 4, 3\)"):
        convert(tmp_path / "x.npy", tmp_path / "out", options=options)


def test_samples_that_share_a_volume_are_compared(tmp_path: Path) -> None:
    """Of small cubes in one volume each is compared with its own file."""
    for number in range(5):
        np.save(tmp_path / f"raw{number}.npy", _cube() + number)
    options = ConvertOptions(pack=Packing.ALWAYS, compression=Compression.NONE, verify=True)
    report = convert(tmp_path, tmp_path / "out", options=options)
    (path,) = set(Catalog.read(report.catalog).table.column("path").to_pylist())
    assert report.verified == 5 * VOXELS
    _flip(tmp_path / "out" / path, (0, 3 * SHAPE[0] + 1, 2, 3))
    with pytest.raises(DataError, match=r"sample 'raw3'.*\(0, 1, 2, 3\).*raw3\.npy"):
        convert(tmp_path, tmp_path / "out", options=options)


@pytest.mark.parametrize(("stored", "other"), [(0x7FC00000, 0x7FC00001), (0x00000000, 0x80000000)])
def test_voxels_are_compared_bit_by_bit(tmp_path: Path, stored: int, other: int) -> None:
    """A NaN equals itself; a NaN of other bits, or a zero of the other sign, does not."""
    cube = np.zeros((4, 4, 4), "<f4")
    cube.view("<u4")[1, 2, 3] = stored
    np.save(tmp_path / "x.npy", cube)
    options = ConvertOptions(compression=Compression.NONE, verify=True)
    assert convert(tmp_path / "x.npy", tmp_path / "out", options=options).verified == 64
    array = zarr.open_array(tmp_path / "out/x.zarr/volume", mode="r+")
    array[0, 1, 2, 3] = np.array([other], "<u4").view("<f4")[0]
    with pytest.raises(DataError, match=rf"\(0, 1, 2, 3\).*bits {other:08x}.*bits {stored:08x}"):
        convert(tmp_path / "x.npy", tmp_path / "out", options=options)


@pytest.mark.parametrize("spare", [0, 1, 2, 40])
def test_any_memory_compares_every_voxel(tmp_path: Path, spare: int) -> None:
    """With room for one tile of a chunk, or for two, or for all, every voxel is compared, channels apart or not."""
    volume = np.arange(3 * VOXELS).astype("<f8").reshape(*SHAPE, 3)
    np.save(tmp_path / "x.npy", volume)
    chunk = 3 * 4 * 5 * 6 * volume.itemsize
    options = ConvertOptions(
        hints=Hints("DHWC"),
        chunks=(4, 5, 6),
        compression=Compression.NONE,
        max_memory=LIBRARY_BYTES + (jobs_in_memory(1) + 1 + spare) * chunk,
        workers=1,
        verify=True,
    )
    assert convert(tmp_path / "x.npy", tmp_path / "out", options=options).verified == volume.size
    _flip(tmp_path / "out/x.zarr", (2, 11, 9, 17))
    with pytest.raises(DataError, match=r"\(2, 11, 9, 17\)"):
        convert(tmp_path / "x.npy", tmp_path / "out", options=options)


@settings(max_examples=50, deadline=None)
@given(shape=st.tuples(*[st.integers(1, 5)] * 4), axis=st.integers(0, 3), draw=st.randoms(use_true_random=False))
def test_the_first_difference_is_where_it_is(shape: tuple[int, ...], axis: int, draw: Any) -> None:
    """One changed element of arrays in any memory order is found at its place; equal arrays have none."""
    left = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    right = np.asfortranarray(left)
    assert first_difference(left, right, axis=axis) is None
    place = tuple(draw.randrange(extent) for extent in shape)
    right = right.copy(order="F")
    right[place] = -1
    assert first_difference(left, right, axis=axis) == place


def test_the_command_line_ends_with_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--verify says how many voxels are equal, and ends with status 1 and one line where one is not."""
    np.save(tmp_path / "x.npy", _cube())
    call = ["convert", str(tmp_path / "x.npy"), str(tmp_path / "out"), "--compression", "none", "--verify"]
    assert run(call) == 0
    assert "2160 voxels, all equal" in capsys.readouterr().out
    assert run([*call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] == VOXELS
    _flip(tmp_path / "out/x.zarr", (0, 1, 2, 3))
    assert run(call) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "sample 'x'" in lines[0]


@pytest.mark.long
def test_memory_stays_within_the_budget(tmp_path: Path) -> None:
    """Comparing a cube of 48 MiB takes no more than the 16 MiB that there were beside the libraries."""
    voxels = np.random.default_rng(0).integers(0, 2**16, (384, 256, 256), "u2")
    (tmp_path / "raw").mkdir()
    np.save(tmp_path / "raw/a.npy", voxels[:64, :64, :64])
    np.save(tmp_path / "raw/b.npy", voxels)
    options = ConvertOptions(max_memory=LIBRARY_BYTES + ROOM, workers=1)
    convert(tmp_path / "raw", tmp_path / "out", options=options)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "raw"), str(tmp_path / "out"), str(options.max_memory)]
    done = processes.run(command, check=True, capture_output=True, text=True)
    verified, grown = map(int, done.stdout.split())
    assert verified == voxels.size
    assert grown <= ROOM
