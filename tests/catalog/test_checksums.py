"""The file of checksums: what is recorded is found, lazily, and a damaged file is never believed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from voxload.catalog.checksums import ROW_GROUP, checksums_name, recording
from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog, Entry
from voxload.data.dataset import VolumeDataset
from voxload.errors import DataError, StorageError
from voxload.readers.chunks.checksumfile import SCHEMA, ChecksumFile, read_checksums
from voxload.readers.chunks.checksums import ChecksumRow, Checksums, checksum_of
from voxload.readers.chunks.sealedparquet import seal
from voxload.readers.protocol import ChecksumSource

GRID = (16, 16, 8)
"""A volume of 2,048 chunks."""
VOLUMES = 256
"""Volumes of a file whose checksums take 2 MiB."""


def sums(seed: int, grid: tuple[int, ...] = GRID, *, holes: bool = False) -> Checksums:
    """Return random checksums, with absent chunks if asked."""
    draw = np.random.default_rng(seed)
    present = draw.random(grid) < 0.8 if holes else np.ones(grid, np.bool_)
    return Checksums(draw.integers(0, 2**32, grid, dtype=np.uint32) * present, present)


def row(index: int, dataset: str = "full") -> ChecksumRow:
    """Return the row of one volume."""
    return ChecksumRow(f"u{index:05}", dataset, f"origin {index}", sums(index, holes=index % 2 == 1))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a file of several row groups."""
    path = tmp_path_factory.mktemp("large") / "catalog.checksums.parquet"
    with recording(path) as add:
        for index in range(VOLUMES):
            add(row(index))
    return path


def same(found: Checksums, expected: Checksums) -> bool:
    """Tell whether two are equal."""
    return np.array_equal(found.values, expected.values) and np.array_equal(found.present, expected.present)


@pytest.mark.long
def test_what_is_recorded_is_found(large: Path) -> None:
    """Every row comes back, whatever group it is in, with its absent chunks."""
    file = ChecksumFile(str(large))
    for index in (0, 1, 31, 32, 100, VOLUMES - 1):
        found = file.find(f"u{index:05}", "full")
        assert found is not None
        assert found.origin == f"origin {index}"
        assert same(found.checksums, row(index).checksums)
    assert file.find("u00001", "labels") is None
    assert file.find("v", "full") is None
    assert len(file.origins()) == VOLUMES


def test_several_fields_of_a_sample(tmp_path: Path) -> None:
    """Rows of one sample are told apart by their dataset, an unnamed one too."""
    with recording(tmp_path / "x") as add:
        for dataset in ("", "a", "b"):
            add(ChecksumRow("s", dataset, "", sums(len(dataset) + ord(dataset or "0"), (2, 3))))
    for dataset in ("", "a", "b"):
        found = read_checksums(ChecksumSource(str(tmp_path / "x"), "s", dataset))
        assert same(found, sums(len(dataset) + ord(dataset or "0"), (2, 3)))


def test_it_is_plain_parquet(large: Path) -> None:
    """Any tool reads it: a list of numbers a row, nulls where there is no chunk."""
    table = pq.read_table(large)
    assert table.column_names == ["sample", "dataset", "origin", "grid", "crc32c"]
    assert table.column("grid")[0].as_py() == list(GRID)
    numbers = table.column("crc32c")[1].as_py()
    expected = sums(1, holes=True)
    assert [number is not None for number in numbers] == expected.present.ravel().tolist()
    assert [number or 0 for number in numbers] == expected.values.ravel().tolist()
    assert pq.read_metadata(large).num_row_groups == VOLUMES * np.prod(GRID) // ROW_GROUP


def _bytes_read() -> int:
    """Return the bytes that this process has read, from files or their cached pages."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_checksums_are_read_when_a_sample_is(large: Path, tmp_path: Path) -> None:
    """Opening a catalogue reads no checksum, and opening a sample reads one row group of the many."""
    place = os.path.relpath(large, tmp_path)
    entries = [
        Entry(f"u{index:05}", "none.h5", "full", (4, 4, 4), "<i2", "DHW", 1, checksums=place)
        for index in range(VOLUMES)
    ]
    Catalog.from_entries(entries, tmp_path, allow_outside=True).write(tmp_path / CATALOG_NAME)
    before = _bytes_read()
    data = VolumeDataset(tmp_path, allow_outside=True)
    assert len(data) == VOLUMES
    assert _bytes_read() - before < (tmp_path / CATALOG_NAME).stat().st_size + 2**16
    location = data.samples.sample(77).locations[0]
    assert location.checksums == ChecksumSource(os.path.join(tmp_path, place), "u00077", "full")  # noqa: PTH118
    before = _bytes_read()
    assert same(read_checksums(location.checksums), row(77).checksums)
    cost = _bytes_read() - before
    assert 4 * np.prod(GRID) < cost < 1.5 * 4 * ROW_GROUP < large.stat().st_size / 4


def test_a_chunk_that_ends_in_its_own_crc_has_a_checksum_of_its_own() -> None:
    """The CRC of data with their CRC behind them is one number for all data; it would tell no chunk from another."""
    bodies = [np.frombuffer(np.random.default_rng(seed).bytes(100), np.uint8) for seed in range(3)]
    chunks = [np.append(body, np.frombuffer(google_crc32c.value(body).to_bytes(4, "little"), "u1")) for body in bodies]
    assert len({google_crc32c.value(chunk) for chunk in chunks}) == 1
    assert len({checksum_of(chunk) for chunk in chunks}) == 3
    assert checksum_of(bodies[0]) == google_crc32c.value(bodies[0])
    for bit in range(8 * len(chunks[0])):
        flipped = chunks[0].copy()
        flipped[bit // 8] ^= 1 << bit % 8
        assert checksum_of(flipped) != checksum_of(chunks[0])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """Give a file of three volumes, and its bytes."""
    path = tmp_path_factory.mktemp("small") / "catalog.checksums.parquet"
    with recording(path) as add:
        for index in range(3):
            add(ChecksumRow(f"u{index}", "full", "", sums(index, (3, 3, 3))))
    return path, path.read_bytes()


def _never_wrong(path: Path) -> None:
    """Check that reading the middle volume gives its checksums or an error that names the file."""
    try:
        found = read_checksums(ChecksumSource(str(path), "u1", "full"))
    except DataError as error:
        assert str(path) in str(error)  # noqa: PT017 - either outcome is right
        assert "remove it and record checksums anew" in str(error)  # noqa: PT017
    else:
        assert same(found, sums(1, (3, 3, 3)))


@pytest.mark.long
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_in_the_file_is_no_checksum(small: tuple[Path, bytes], place: float, bit: int) -> None:
    """Wherever a bit flips, what is found is right, or an error names the file."""
    path, good = small
    bad = bytearray(good)
    bad[int(place * len(bad))] ^= 1 << bit
    path.write_bytes(bad)
    _never_wrong(path)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_cut_file_is_an_error(small: tuple[Path, bytes], share: float) -> None:
    """A file that lost its end is refused by name."""
    path, good = small
    path.write_bytes(good[: int(share * len(good))])
    with pytest.raises(DataError, match=path.name):
        read_checksums(ChecksumSource(str(path), "u1", "full"))


def _folder(path: Path) -> None:
    path.mkdir()


def _catalog(path: Path) -> None:
    Catalog.from_entries([Entry("u1", "a", "full", (4, 4, 4), "<i2", "DHW", 1)], path.parent).write(path)


def _others(path: Path) -> None:
    with recording(path) as add:
        add(ChecksumRow("u2", "full", "", sums(1, (2, 2, 2))))


def _wrong_grid(path: Path) -> None:
    _others(path)
    table = pq.read_table(path)
    table = table.set_column(3, "grid", [[[2, 2, 3]]]).set_column(0, "sample", [["u1"]])
    pq.write_table(table.replace_schema_metadata(SCHEMA.metadata), path)
    seal(path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _path: None, "no such file"),
        (_folder, "catalog.checksums.parquet"),
        (lambda path: path.write_bytes(b""), "catalog.checksums.parquet"),
        (_catalog, "a footer without a checksum of its own"),
        (_others, "no checksums of sample 'u1', dataset 'full'"),
        (_wrong_grid, "8 checksums for a grid of"),
    ],
)
def test_what_is_no_file_of_checksums(tmp_path: Path, make: Callable[[Path], object], words: str) -> None:
    """What the catalogue promises and is not there is an error, never a read without verification."""
    path = tmp_path / "catalog.checksums.parquet"
    make(path)
    with pytest.raises(DataError, match=words) as caught:
        read_checksums(ChecksumSource(str(path), "u1", "full"))
    assert str(path) in str(caught.value)


def test_it_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """What fails half-way leaves the older file; a folder that takes none is a storage error."""
    path = tmp_path / checksums_name(Path(CATALOG_NAME))
    _others(path)
    before = path.read_bytes()

    def fail() -> None:
        with recording(path) as add:
            add(row(0))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [part.name for part in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before
    with pytest.raises(StorageError), recording(tmp_path / "none/x"):
        pass


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    """What is remembered of a file is not believed of the one in its place."""
    path = tmp_path / "x"
    for index in range(2):
        with recording(path) as add:
            add(ChecksumRow("s", "", "", sums(index, (2 + index,))))
        assert same(read_checksums(ChecksumSource(str(path), "s", "")), sums(index, (2 + index,)))
