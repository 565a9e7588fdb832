"""Whole conversions: every voxel in its place, every run the same, every refusal before damage."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import processes
from voxload.catalog.table import Catalog
from voxload.convert import (
    Assignment,
    ConvertOptions,
    Gridding,
    Headerless,
    Hints,
    MemoryOrder,
    Progress,
    StoredFormat,
    convert,
)
from voxload.convert.plan import planning
from voxload.convert.plan.tiles import LIBRARY_BYTES
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, open_reader

FORMATS = list(StoredFormat)
SHAPE = (3, 12, 10, 18)
CHUNKS = (4, 5, 8)


@pytest.mark.few_cases(4)
@pytest.mark.parametrize(
    ("axes", "stored"),
    [
        # The short run converts every order, into each format in turn.
        pytest.param("".join(letters), stored, marks=() if (number + place) % 2 else pytest.mark.long)
        for number, letters in enumerate(permutations("CDHW"))
        for place, stored in enumerate(FORMATS)
    ],
)
def test_no_axis_moves(
    tmp_path: Path, stored: StoredFormat, axes: str, *, coordinates: Any, write_universe: Any, converted: Any
) -> None:
    """Voxels that encode their own coordinates arrive at these coordinates, from every order of the axes."""
    volume = coordinates(SHAPE)
    turned = volume.transpose(["CDHW".index(axis) for axis in axes])
    write_universe(tmp_path / "raw/hdf5.hdf5", volume, axes=axes)
    np.save(tmp_path / "raw/c.npy", turned)
    np.save(tmp_path / "raw/f.npy", np.asfortranarray(turned))
    for name in ("hdf5.hdf5", "c.npy", "f.npy"):
        options = ConvertOptions(format=stored, hints=Hints(axes), chunks=CHUNKS)
        report = convert(tmp_path / "raw" / name, tmp_path / name, options=options)
        found = converted(report.catalog, name.split(".")[0])
        assert found.dtype == volume.dtype
        np.testing.assert_array_equal(found, volume)


@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("order", list(MemoryOrder))
def test_headerless_cubes(
    tmp_path: Path, stored: StoredFormat, order: MemoryOrder, *, coordinates: Any, converted: Any
) -> None:
    """Headerless binary of either memory order, big-endian, without channels, becomes one channel."""
    volume = coordinates((1, 9, 14, 11), ">i2")
    (tmp_path / "density.raw").write_bytes(volume[0].tobytes(order.value))
    options = ConvertOptions(
        format=stored, hints=Hints(headerless=Headerless((9, 14, 11), ">i2", order)), chunks=(4, 4, 4)
    )
    report = convert(tmp_path / "density.raw", tmp_path / "out", options=options)
    entry = Catalog.read(report.catalog).entry("density", "volume")
    assert (entry.shape, entry.dtype, entry.axes, entry.targets) == ((1, 9, 14, 11), "<i2", "CDHW", {})
    np.testing.assert_array_equal(converted(report.catalog, "density"), volume)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(
    shape=st.tuples(*[st.integers(1, 11)] * 4),
    dtype=st.sampled_from(["i1", "u2", "<i2", ">i4", "u8", "f2", ">f4", "f8", "?"]),
    stored=st.sampled_from(FORMATS),
    spare=st.integers(0, 2),
)
def test_any_volume_round_trips(
    tmp_path: Path, converted: Any, *, shape: tuple[int, ...], dtype: str, stored: StoredFormat, spare: int
) -> None:
    """Any extents and type come out equal, whatever memory allows to be read at once."""
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    volume = np.random.default_rng(1).integers(0, 2**7, shape).astype(dtype)
    np.save(tmp_path / "x.npy", volume)
    chunks = tuple(max(1, extent // 2) for extent in shape[1:])
    size = LIBRARY_BYTES + (10 + spare) * volume.nbytes + 2**16
    options = ConvertOptions(
        format=stored, hints=Hints("CDHW"), chunks=(chunks[0], chunks[1], chunks[2]), max_memory=size, workers=1
    )
    report = convert(tmp_path / "x.npy", tmp_path / "out", options=options)
    found = converted(report.catalog, "x")
    assert found.dtype == volume.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, volume)


@pytest.mark.parametrize("stored", FORMATS)
def test_catalogue_and_files(
    tmp_path: Path, stored: StoredFormat, *, coordinates: Any, write_universe: Any, visible: Any
) -> None:
    """A folder of universes becomes one sample each, with targets, stored bytes and nothing beside them."""
    for index in range(3):
        volume = coordinates((4, 8, 8, 8), "<i2") + np.int16(index)
        write_universe(tmp_path / f"raw/{index}/universe.hdf5", volume, targets=[index, 2, 3, 4])
    (tmp_path / "raw/README.txt").write_text("notes")
    (tmp_path / "raw/.hidden.npy").write_text("no cube")
    report = convert(tmp_path / "raw", tmp_path / "out", options=ConvertOptions(format=stored))
    names = [f"{index}_universe" for index in range(3)]
    assert (report.converted, report.skipped, report.ignored) == (tuple(names), (), ("README.txt",))
    assert report.bytes_read == 3 * 4 * 8**3 * 2
    assert visible(tmp_path / "out") == sorted([*(name + stored.suffix for name in names), "catalog.parquet"])
    catalog = Catalog.read(report.catalog)
    assert catalog.target_names == ("omega_m", "sigma_8", "n_spec", "h_0")
    assert [catalog.entry(name, "full").targets["omega_m"] for name in names] == [0, 1, 2]
    assert sum(catalog.entry(name, "full").stored_bytes for name in names) == report.bytes_written
    for index, name in enumerate(names):
        entry = catalog.entry(name, "full")
        reader = open_reader(Location(str(tmp_path / "out" / entry.path), "full", shape=entry.shape, dtype=entry.dtype))
        out = np.empty(entry.shape, dtype="i2")
        reader.read_into(Box.whole(entry.shape[1:]), out)
        reader.close()
        np.testing.assert_array_equal(out, coordinates((4, 8, 8, 8), "<i2") + np.int16(index))


def test_zarr_metadata_and_every_chunk_stored(tmp_path: Path, write_universe: Any) -> None:
    """An all-zero universe stores every shard and every chunk, and its metadata say what it is."""
    write_universe(tmp_path / "zero.hdf5", np.zeros((2, 16, 16, 16), dtype="<i2"))
    options = ConvertOptions(chunks=(4, 4, 4))
    convert(tmp_path / "zero.hdf5", tmp_path / "out", options=options)
    group = tmp_path / "out/zero.zarr"
    metadata = json.loads((group / "full/zarr.json").read_bytes())
    sharding = metadata["codecs"][0]
    assert (metadata["zarr_format"], metadata["dimension_names"]) == (3, ["c", "d", "h", "w"])
    assert (metadata["shape"], metadata["fill_value"], metadata["data_type"]) == ([2, 16, 16, 16], 0, "int16")
    codecs = sharding["configuration"]["codecs"]
    assert [codec["name"] for codec in codecs] == ["bytes", "blosc", "crc32c"]
    assert (codecs[1]["configuration"]["cname"], codecs[1]["configuration"]["shuffle"]) == ("lz4", "bitshuffle")
    shards = [path for path in (group / "full/c").rglob("*") if path.is_file()]
    assert len(shards) == math.prod(-(-a // b) for a, b in zip(metadata["shape"], _shard_shape(metadata), strict=True))
    inner = math.prod(
        a // b for a, b in zip(_shard_shape(metadata), sharding["configuration"]["chunk_shape"], strict=True)
    )
    for shard in shards:
        index = np.frombuffer(shard.read_bytes()[-16 * inner - 4 : -4], dtype="<u8")
        assert (index != 2**64 - 1).all()
    manifest = zarr.open_group(group, mode="r").attrs["voxload"]
    assert isinstance(manifest, dict)
    assert manifest["members"][0]["targets"]["sigma_8"] == float(np.float32(0.2))
    assert manifest["parts"][0]["files"][0]["name"] == "zero.hdf5"


def _shard_shape(metadata: dict[str, Any]) -> list[int]:
    shape: list[int] = metadata["chunk_grid"]["configuration"]["chunk_shape"]
    return shape


def test_large_cube_has_several_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, converted: Any) -> None:
    """A cube above the size that files should have is cut into several, and stays equal, read by less than planes."""
    monkeypatch.setattr(planning, "FILE_AIM", 2**18)
    volume = np.random.default_rng(0).integers(0, 9, (1, 64, 144, 144), dtype="i2")
    np.save(tmp_path / "x.npy", volume)
    options = ConvertOptions(hints=Hints("CDHW"), max_memory=LIBRARY_BYTES + 3 * 2**20, workers=1)
    (planned,) = planning.plan_volumes(tmp_path / "x.npy", tmp_path / "out", options).volumes
    assert planned.tiling.tile[1] < planned.tiling.spatial[1]
    report = convert(tmp_path / "x.npy", tmp_path / "out", options=options)
    files = [path for path in (tmp_path / "out/x.zarr/volume/c").rglob("*") if path.is_file()]
    assert len(files) == 2
    assert all((2**16 < path.stat().st_size < 2**20) for path in files)
    np.testing.assert_array_equal(converted(report.catalog, "x"), volume)


def test_flipped_byte_is_noticed(tmp_path: Path) -> None:
    """Every chunk has a checksum: one flipped byte in a shard is an error when it is read."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 2**15, (8, 8, 8), dtype="i2"))
    convert(tmp_path / "x.npy", tmp_path / "out")
    (shard,) = (path for path in (tmp_path / "out/x.zarr/volume/c").rglob("*") if path.is_file())
    content = bytearray(shard.read_bytes())
    content[200] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        zarr.open_array(tmp_path / "out/x.zarr/volume", mode="r")[...]


def test_hdf5_metadata(tmp_path: Path, write_universe: Any) -> None:
    """The HDF5 form has labels, checksums, a compression that every library reads, and the targets by name."""
    write_universe(tmp_path / "u.hdf5", np.zeros((2, 16, 16, 16), dtype="<i2"))
    convert(tmp_path / "u.hdf5", tmp_path / "out", options=ConvertOptions(format=StoredFormat.HDF5))
    with h5py.File(tmp_path / "out/u.h5", "r") as file:
        cube = file["full"]
        assert [dimension.label for dimension in cube.dims] == ["c", "d", "h", "w"]
        assert (cube.shuffle, cube.compression, cube.compression_opts, cube.fletcher32) == (True, "gzip", 1, True)
        assert cube.id.get_num_chunks() == 8
        assert list(file["targets"].attrs["names"]) == ["omega_m", "sigma_8", "n_spec", "h_0"]
        np.testing.assert_allclose(file["targets"], [0.1, 0.2, 0.3, 0.4], rtol=1e-6)


@pytest.mark.parametrize("stored", FORMATS)
def test_second_run_skips_what_is_complete(tmp_path: Path, stored: StoredFormat, *, converted: Any) -> None:
    """Complete samples are left as they are; a new and a changed source are converted, and all are catalogued."""
    raw, out, options = tmp_path / "raw", tmp_path / "out", ConvertOptions(format=stored)
    raw.mkdir()
    for name in "ab":
        np.save(raw / f"{name}.npy", np.full((4, 4, 4), ord(name), dtype="i2"))
    convert(raw, out, options=options)
    kept = (out / f"a{stored.suffix}").stat()
    np.save(raw / "b.npy", np.full((5, 5, 5), 7, dtype="i2"))
    np.save(raw / "c.npy", np.full((4, 4, 4), 8, dtype="i2"))
    report = convert(raw, out, options=options)
    assert (report.converted, report.skipped, report.bytes_read) == (("b", "c"), ("a",), 2 * (125 + 64))
    now = (out / f"a{stored.suffix}").stat()
    assert (now.st_ino, now.st_mtime_ns) == (kept.st_ino, kept.st_mtime_ns)
    assert converted(report.catalog, "b").shape == (1, 5, 5, 5)
    assert Catalog.read(report.catalog).samples == ("a", "b", "c")
    again = convert(raw, out, options=options)
    assert (again.converted, again.bytes_read) == ((), 0)
    moved = shutil.move(raw, tmp_path / "moved")
    assert convert(moved, out, options=options).skipped == ("a", "b", "c")


def test_damaged_result_is_converted_again(tmp_path: Path, converted: Any) -> None:
    """A sample that lost a shard since is not complete."""
    np.save(tmp_path / "x.npy", np.arange(64, dtype="i2").reshape(4, 4, 4))
    convert(tmp_path / "x.npy", tmp_path / "out")
    shutil.rmtree(tmp_path / "out/x.zarr/volume/c")
    report = convert(tmp_path / "x.npy", tmp_path / "out")
    assert report.converted == ("x",)
    assert converted(report.catalog, "x")[0, 3, 3, 3] == 63


def test_progress_counts_to_the_end(tmp_path: Path) -> None:
    """Progress grows tile by tile and ends at the total of all samples."""
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.zeros((8, 8, 8), dtype="i2"))
    seen: list[Progress] = []
    options = ConvertOptions(format=StoredFormat.HDF5, chunks=(4, 4, 4))
    convert(tmp_path, tmp_path / "out", options=options, progress=seen.append)
    done = [step.bytes_done for step in seen]
    assert all(a <= b for a, b in itertools.pairwise(done))
    assert (done[-1], seen[-1].bytes_total, len(set(done) - {0})) == (2048, 2048, 4)


def test_refusals_before_anything_is_written(
    tmp_path: Path, write_universe: Any, visible: Callable[[Path], list[str]]
) -> None:
    """Wrong calls and broken input end before the destination is touched."""
    raw, out = tmp_path / "raw", tmp_path / "out"
    with pytest.raises(NotFoundError, match="no such file or folder"):
        convert(raw, out)
    raw.mkdir()
    with pytest.raises(NotFoundError, match="no raw cube among 0 files"):
        convert(raw, out)
    (raw / "notes.txt").write_text("hello")
    with pytest.raises(UsageError, match="--shape, --dtype and --order"):
        convert(raw / "notes.txt", out)
    write_universe(raw / "nan.hdf5", np.zeros((1, 2, 2, 2), dtype="i2"), targets=[1, math.nan, 2, 3])
    with pytest.raises(DataError, match="target 'sigma_8' of sample 'nan'"):
        convert(raw, out)
    write_universe(raw / "nan.hdf5", np.zeros((1, 2, 2, 2), dtype="i2"), targets=[1, 2])
    write_universe(raw / "other.hdf5", np.zeros((1, 2, 2, 2), dtype="i2"))
    with pytest.raises(DataError, match=r"sample 'other': found targets .* as sample 'nan' has"):
        convert(raw, out)
    (raw / "other.hdf5").unlink()
    with h5py.File(raw / "nan.hdf5", "a") as file:
        file["namePar"] = np.array([b"shape", b"a"])
    with pytest.raises(DataError, match="a name that the catalogue needs for itself"):
        convert(raw, out)
    (raw / "nan.hdf5").write_bytes(b"not HDF5 at all")
    with pytest.raises(DataError, match=r"no \.hdf5 signature in its 15 bytes"):
        convert(raw, out)
    (raw / "nan.hdf5").unlink()
    np.save(raw / "a_b.npy", np.zeros((4, 4, 4)))
    (raw / "a").mkdir()
    np.save(raw / "a/b.npy", np.zeros((4, 4, 4)))
    with pytest.raises(UsageError, match=r"two files for it, a_b.npy and a/b.npy"):
        convert(raw, out)
    (raw / "a/b.npy").unlink()
    with pytest.raises(UsageError, match=r"projected.*at most 1 MiB"):
        convert(raw, out, options=ConvertOptions(max_memory=2**20))
    with pytest.raises(UsageError, match="the source folder itself"):
        convert(raw, raw)
    with pytest.raises(UsageError, match="found a file"):
        convert(raw, raw / "a_b.npy")
    assert visible(tmp_path) == ["raw"]


def test_what_is_not_ours_is_not_replaced(tmp_path: Path) -> None:
    """A foreign file, another file's conversion, or the sample in the other format stays where it is."""
    out = tmp_path / "out"
    for folder in "ab":
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "x.npy", np.full((4, 4, 4), ord(folder)))
    (out / "x.zarr").mkdir(parents=True)
    with pytest.raises(UsageError, match="did not make"):
        convert(tmp_path / "a", out)
    (out / "x.zarr").rmdir()
    convert(tmp_path / "a", out)
    with pytest.raises(UsageError, match=r"the conversion of another file, .*a/x\.npy"):
        convert(tmp_path / "b", out)
    with pytest.raises(UsageError, match="the same sample in zarr"):
        convert(tmp_path / "a", out, options=ConvertOptions(format=StoredFormat.HDF5))


def test_samples_of_other_targets_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Both kinds of sample are named; the folder is as it was, and goes on taking samples of its own targets."""
    for folder, targets in (("two", 2), ("three", 3), ("more", 2)):
        (tmp_path / folder).mkdir()
        with h5py.File(tmp_path / folder / f"{folder}.hdf5", "w") as file:
            file["full"] = np.arange(2 * 6**3, dtype=np.int16).reshape(6, 6, 6, 2)
            file["unitPar"] = np.zeros(targets, np.float32)
    convert(tmp_path / "two", tmp_path / "out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"sample 'two' with targets .*, and sample 'three' with .*another folder"):
        convert(tmp_path / "three", tmp_path / "out")
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before
    assert convert(tmp_path / "more", tmp_path / "out").converted == ("more",)
    assert Catalog.read(tmp_path / "out").samples == ("more", "two")


def test_destination_inside_the_source(tmp_path: Path) -> None:
    """Results that lie under the source folder are not taken for sources."""
    np.save(tmp_path / "x.npy", np.zeros((4, 4, 4)))
    options = ConvertOptions(format=StoredFormat.HDF5)
    for _ in range(2):
        report = convert(tmp_path, tmp_path / "out", options=options)
    assert (report.converted, report.skipped) == ((), ("x",))


@pytest.mark.parametrize("stored", FORMATS)
def test_source_that_changes_while_it_is_read(tmp_path: Path, stored: StoredFormat, *, visible: Any) -> None:
    """A source that something writes to leaves no sample behind."""
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((8, 8, 8)))
    with pytest.raises(DataError, match=r"x\.npy.*nothing writes to it"):
        convert(
            path, tmp_path / "out", options=ConvertOptions(format=stored), progress=lambda _: os.utime(path, ns=(1, 1))
        )
    assert visible(tmp_path / "out") == []


@pytest.mark.long
def test_conversion_does_not_import_torch() -> None:
    """The converter's memory budget has no room for torch, which it does not need."""
    code = "import sys, voxload.convert, voxload.cli.convert; sys.exit('torch' in sys.modules)"
    assert processes.run([sys.executable, "-c", code], check=False).returncode == 0


def test_particles_become_a_cube(tmp_path: Path) -> None:
    """Snapshots are refused without a grid, with the remedy, and with one become cubes of all their files."""
    rng = np.random.default_rng(0)
    positions = rng.uniform(0, 8, (500, 3))
    for part in range(2):
        with h5py.File(tmp_path / f"snap_000.{part}.hdf5", "w") as file:
            counts = [0, 250, 0, 0, 0, 0]
            file.create_group("Header").attrs.update(
                NumPart_ThisFile=counts,
                NumPart_Total=[0, 500, 0, 0, 0, 0],
                NumPart_Total_HighWord=[0] * 6,
                MassTable=[0, 2.0, 0, 0, 0, 0],
                NumFilesPerSnapshot=2,
                BoxSize=8.0,
                Redshift=0.5,
                Time=1 / 1.5,
            )
            file["PartType1/Coordinates"] = positions[250 * part : 250 * part + 250]
    with pytest.raises(UsageError, match=r"--grid 512 --assign cic"):
        convert(tmp_path, tmp_path / "out")
    options = ConvertOptions(gridding=Gridding(8, Assignment.NGP))
    report = convert(tmp_path, tmp_path / "out", options=options)
    (sample,) = Catalog.read(report.catalog).samples
    reader = open_reader(Location(str(tmp_path / "out" / f"{sample}.zarr"), "density"))
    found = np.empty((1, 8, 8, 8), "f4")
    reader.read_into(Box.whole((8, 8, 8)), found)
    reader.close()
    expected = 2 * np.histogramdd(positions, bins=8, range=[(0, 8)] * 3)[0]
    np.testing.assert_array_equal(found[0], expected.astype("f4"))
    assert convert(tmp_path, tmp_path / "out", options=options).skipped == (sample,)
