"""Conversions with checksums: of every chunk as it is stored, of every sample, whatever interrupts the run."""

from __future__ import annotations

import signal
import struct
from math import prod
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import numpy as np
import pytest

from tests.support import scripts
from voxload.catalog.checksums import sum_volume
from voxload.catalog.table import Catalog
from voxload.convert import ConvertOptions, StoredFormat, convert
from voxload.convert.write import checksums as convert_checksums
from voxload.data.dataset import VolumeDataset
from voxload.errors import DataError
from voxload.readers.chunks.checksumfile import read_checksums
from voxload.readers.chunks.checksums import Checksums
from voxload.readers.protocol import ChecksumSource, Location

FORMATS = list(StoredFormat)
SUMS = "catalog.checksums.parquet"
CHUNKS = (4, 4, 4)
SHAPE = (8, 12, 6)


def _with(stored: StoredFormat = StoredFormat.ZARR) -> ConvertOptions:
    return ConvertOptions(format=stored, chunks=CHUNKS, checksums=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Give a folder of three cubes."""
    (tmp_path / "raw").mkdir()
    for index, name in enumerate("abc"):
        volume = np.random.default_rng(index).integers(0, 100, SHAPE).astype("<i2")
        np.save(tmp_path / "raw" / f"{name}.npy", volume)
    return tmp_path / "raw"


def _sums(out: Path, sample: str) -> Checksums:
    return read_checksums(ChecksumSource(str(out / SUMS), sample, "volume"))


def _stored_chunks(path: Path) -> list[bytes]:
    """Return the chunks of a converted sample in the order of the grid, by h5py, or by the shard's own index."""
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            node = file["volume"]
            places = [
                (0, *(index * 4 for index in place)) for place in np.ndindex(*(-(-extent // 4) for extent in SHAPE))
            ]
            return [node.id.read_direct_chunk(place)[1] for place in places]
    shard = (path / "volume/c/0/0/0/0").read_bytes()
    count = 2 * 3 * 2
    entries = struct.iter_unpack("<QQ", shard[-4 - 16 * count : -4])
    # The CRC-32C codec is the last of a converted chunk: its four bytes are what identifies the rest.
    return [shard[offset : offset + length - 4] for offset, length in entries]


@pytest.mark.parametrize("stored", FORMATS)
def test_checksums_are_of_what_is_stored(tmp_path: Path, source: Path, stored: StoredFormat) -> None:
    """Every chunk has the CRC-32C of its bytes in the file, found without any reader of ours."""
    report = convert(source, tmp_path / "out", options=_with(stored))
    assert report.summed == 3
    assert {Catalog.read(report.catalog).entry(name, "volume").checksums for name in "abc"} == {SUMS}
    for name in "abc":
        found = _sums(tmp_path / "out", name)
        assert found.grid == (1, 2, 3, 2)
        assert found.present.all()
        expected = [google_crc32c.value(chunk) for chunk in _stored_chunks(tmp_path / "out" / f"{name}{stored.suffix}")]
        assert found.values.ravel().tolist() == expected
    data = VolumeDataset(tmp_path / "out")
    for index, name in enumerate("abc"):
        np.testing.assert_array_equal(data[index][0][0].numpy(), np.load(source / f"{name}.npy"))
    data.close()
    names = [path.name for path in (tmp_path / "out").iterdir()]
    assert sorted(names) == [*(f"{name}{stored.suffix}" for name in "abc"), SUMS, "catalog.parquet"]


@pytest.mark.parametrize("stored", FORMATS)
def test_a_flipped_bit_reaches_no_training(tmp_path: Path, source: Path, stored: StoredFormat) -> None:
    """A data set of the catalogue verifies without being told to."""
    convert(source, tmp_path / "out", options=_with(stored))
    path = tmp_path / "out" / f"b{stored.suffix}"
    shard = path / "volume/c/0/0/0/0" if path.is_dir() else path
    content = bytearray(shard.read_bytes())
    place = content.index(_stored_chunks(path)[-1]) + 5
    content[place] ^= 0x10
    shard.write_bytes(content)
    data = VolumeDataset(tmp_path / "out")
    assert data[0][0].shape == (1, *SHAPE)
    with pytest.raises(DataError, match=rf"b{stored.suffix}:volume, chunk \(0, 1, 2, 1\): bytes of chunk .*CRC-32C"):
        data[1]
    data.close()


def test_samples_that_were_complete_get_checksums(tmp_path: Path, source: Path) -> None:
    """Asking later reads what is there, also samples of another source, and a catalogue without asks for none."""
    out = tmp_path / "out"
    (tmp_path / "more").mkdir()
    (source / "c.npy").rename(tmp_path / "more/c.npy")
    assert convert(tmp_path / "more", out, options=ConvertOptions(chunks=CHUNKS)).summed == 0
    assert not (out / SUMS).exists()
    shown: list[tuple[str, int, int]] = []
    report = convert(
        source, out, options=_with(), progress=lambda p: shown.append((p.sample, p.bytes_done, p.bytes_total))
    )
    assert (report.converted, report.summed) == (("a", "b"), 3)
    size = 2 * prod(SHAPE)
    assert ("b", 2 * size, 2 * size) in shown
    assert shown[-1] == ("c", size, size)
    assert _sums(out, "c").present.all()


@pytest.mark.long
def test_what_is_known_is_not_read_again(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run reads no sample, with the option or without, and keeps all checksums."""
    out = tmp_path / "out"
    convert(source, out, options=_with())
    before = (out / SUMS).stat()
    monkeypatch.setattr(convert_checksums, "sum_volume", _refuse)
    for checksums in (True, False):
        report = convert(source, out, options=ConvertOptions(chunks=CHUNKS, checksums=checksums))
        assert (report.skipped, report.summed) == (("a", "b", "c"), 3)
    assert (out / SUMS).stat().st_ino == before.st_ino


def _refuse(location: Location) -> Checksums:
    raise AssertionError(location)


@pytest.mark.long
def test_a_sample_that_is_converted_anew(tmp_path: Path, source: Path) -> None:
    """A changed source has new checksums; without the option none, and never its old ones."""
    out = tmp_path / "out"
    convert(source, out, options=_with())
    old = [_sums(out, name) for name in "abc"]
    np.save(source / "b.npy", np.ones(SHAPE, "<i4"))
    report = convert(source, out, options=ConvertOptions(chunks=CHUNKS))
    assert (report.converted, report.summed) == (("b",), 2)
    assert [Catalog.read(report.catalog).entry(name, "volume").checksums for name in "abc"] == [SUMS, "", SUMS]
    assert convert(source, out, options=_with()).summed == 3
    new = [_sums(out, name) for name in "abc"]
    assert [np.array_equal(one.values, other.values) for one, other in zip(old, new, strict=True)] == [1, 0, 1]
    data = VolumeDataset(out)
    assert bool((data[1][0] == 1).all())
    data.close()


def test_a_removed_sample_is_forgotten(tmp_path: Path, source: Path) -> None:
    """The file has the samples of the catalogue and no others."""
    out = tmp_path / "out"
    convert(source, out, options=ConvertOptions(format=StoredFormat.HDF5, chunks=CHUNKS, checksums=True))
    (out / "a.h5").unlink()
    (source / "a.npy").unlink()
    assert convert(source, out, options=_with(StoredFormat.HDF5)).summed == 2
    with pytest.raises(DataError, match="no checksums of sample 'a'"):
        _sums(out, "a")


CHILD = """
import sys
from pathlib import Path
from voxload.convert import ConvertOptions, StoredFormat, convert
from voxload.convert.write import checksums
src, dst, stored, stop = sys.argv[1:]
sum_volume, calls = checksums.sum_volume, []
def wait(location):
    calls.append(location.path)
    if len(calls) == int(stop):
        sys.stdout.write("reached\\n")
        sys.stdout.flush()
        sys.stdin.read()
    return sum_volume(location)
checksums.sum_volume = wait
convert(src, dst, options=ConvertOptions(format=StoredFormat(stored), chunks=(4, 4, 4), checksums=True))
"""
"""A conversion that waits, to be killed, when its STOPth sample is complete and not yet summed."""


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("stored", FORMATS)
def test_killed_between_a_sample_and_its_checksums(
    tmp_path: Path, source: Path, stored: StoredFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After SIGKILL the next run sums the sample at hand and the later ones, and none that was summed."""
    out = tmp_path / "out"
    with scripts.started(CHILD, source, out, stored.value, "2") as child:
        try:
            assert child.stdout.readline() == "reached\n"
        finally:
            child.kill()
            child.wait()
    assert child.returncode == -signal.SIGKILL
    assert not (out / "catalog.parquet").exists()
    summed: list[str] = []

    def note(location: Location) -> Checksums:
        summed.append(Path(location.path).stem)
        return sum_volume(location)

    monkeypatch.setattr(convert_checksums, "sum_volume", note)
    report = convert(source, out, options=_with(stored))
    # The third is complete, too, where it was kept waiting for its sums before the signal came.
    assert report.skipped[:2] == ("a", "b")
    assert ((*report.skipped, *report.converted), report.summed) == (("a", "b", "c"), 3)
    assert sorted(summed) == ["b", "c"]
    for name in "abc":
        expected = [google_crc32c.value(chunk) for chunk in _stored_chunks(out / f"{name}{stored.suffix}")]
        assert _sums(out, name).values.ravel().tolist() == expected
    assert not [path for path in out.iterdir() if path.name.startswith(".") and not path.name.endswith(".lock")]


def test_leftovers_of_a_killed_run_go(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed run kept beside its samples is gone after one that asks for no checksums."""
    out = tmp_path / "out"

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(convert_checksums.SampleChecksums, "merge", fail)
        with pytest.raises(KeyboardInterrupt):
            convert(source, out, options=_with())
    assert len(list(out.glob(".*checksums"))) == 3
    assert convert(source, out, options=ConvertOptions(chunks=CHUNKS)).summed == 0
    assert not list(out.glob(".*checksums"))


def test_a_damaged_file_of_checksums_stops_a_conversion_before_it_begins(tmp_path: Path, source: Path) -> None:
    """It is neither believed nor replaced without a word."""
    out = tmp_path / "out"
    convert(source, out, options=_with())
    (out / SUMS).write_bytes((out / SUMS).read_bytes()[:-20])
    np.save(source / "d.npy", np.ones(SHAPE, "<i2"))
    for checksums in (True, False):
        with pytest.raises(
            DataError, match=rf"{SUMS}: found .*; copy it again, or remove it and record checksums anew"
        ):
            convert(source, out, options=ConvertOptions(chunks=CHUNKS, checksums=checksums))
    assert not (out / "d.zarr").exists()


def test_a_bad_chunk_is_not_recorded(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage between the writer and the file is found when the sample is read back, and no catalogue names it."""
    out = tmp_path / "out"

    def damage(location: Location) -> Checksums:
        shard = Path(location.path) / "volume/c/0/0/0/0"
        content = bytearray(shard.read_bytes())
        content[3] ^= 1
        shard.write_bytes(content)
        return sum_volume(location)

    monkeypatch.setattr(convert_checksums, "sum_volume", damage)
    with pytest.raises(DataError, match=r"a.zarr:volume, chunk \(0, 0, 0, 0\): .*checksum"):
        convert(source, out, options=_with())
    assert not (out / "catalog.parquet").exists()
