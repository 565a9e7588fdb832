"""Generated data sets: read back by plain h5py, zarr-python and numpy, added to, and refused in time."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import zarr

from tests.benchmark.small_sets import CHUNKED, CHUNKS, SHAPE, check_complete, samples, small_plan
from voxload.benchmark.generate.generate import generate
from voxload.benchmark.generate.generated import PLAN_NAME, Truth
from voxload.benchmark.generate.plan import Contents, DatasetPlan, Kind
from voxload.benchmark.generate.storage import Codec, Storage, StoreFormat
from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog
from voxload.convert.options import Progress
from voxload.convert.write.lock import locked
from voxload.data.dataset import VolumeDataset
from voxload.errors import DataError, NotFoundError, StorageError, UsageError
from voxload.geometry import Box
from voxload.grid import ProcessGrid

Array = npt.NDArray[Any]

DTYPES = ("u1", "i1", "<u2", ">i2", "<u4", "<i4", "<f2", ">f4", "<f8")
CODECS = [(stored, codec) for stored in CHUNKED for codec in stored.codecs]
FILTERS = {
    "none": [],
    "gzip": ["gzip"],
    "shuffle-gzip": ["shuffle", "gzip"],
    "zstd": ["32015"],
    "shuffle-zstd": ["shuffle", "32015"],
    "lz4": ["32004"],
    "blosc-lz4": ["32001"],
    "blosc-zstd": ["32001"],
}
"""HDF5 filters of each codec: names, or numbers of the HDF5 filter registry."""


def _stored(path: Path) -> Array:
    """Return what a file holds, by the format's own library alone; a raw file as bytes."""
    if path.suffix == ".h5":
        with h5py.File(path, "r") as file:
            return np.asarray(file["volume"][...])
    if path.suffix == ".zarr":
        return np.asarray(zarr.open_array(path, mode="r")[...])
    return np.fromfile(path, np.uint8) if path.suffix == ".raw" else np.asarray(np.load(path))


def _expected(plan: DatasetPlan, number: int) -> Array:
    """Return a sample as (C, D, H, W)."""
    out = np.empty(plan.shape, plan.values.dtype)
    plan.values.fill(Box.whole(plan.spatial), out, sample=number)
    return out


def _turned(volume: Array, axes: str) -> Array:
    return volume.transpose(["CDHW".index(axis) for axis in axes])


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stored", list(StoreFormat))
@pytest.mark.usefixtures("no_leaks")
def test_every_format_and_type_reads_back(tmp_path: Path, stored: StoreFormat, dtype: str) -> None:
    """What h5py, zarr-python and numpy find is the pattern, bit for bit and in the stored type."""
    plan = small_plan(stored, dtype)
    report = generate(tmp_path, plan)
    assert (report.samples, report.written, report.nbytes) == (2, 2, 2 * plan.sample_bytes)
    assert len(samples(tmp_path)) == 2
    for number, path in enumerate(samples(tmp_path)):
        found, expected = _stored(path), _expected(plan, number)
        if stored is StoreFormat.RAW:
            found = found.view(dtype).reshape(SHAPE)
        if stored is StoreFormat.ZARR3:  # which is handed out in this machine's byte order, whatever the stored one is
            chunk = np.fromfile(path / "c/0/0/0/0", dtype).reshape(CHUNKS)
            assert np.array_equal(chunk, expected[:1, :4, :4, :5])
            found = found.astype(dtype)
        assert found.tobytes() == expected.astype(dtype).tobytes()


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("axes", ["CDHW", "DHWC", "WCHD"])
@pytest.mark.parametrize("stored", list(StoreFormat))
def test_the_loader_reads_every_format_in_every_order(tmp_path: Path, stored: StoreFormat, axes: str) -> None:
    """VolumeDataset takes the folder as it is; blocks with halo agree with the truth, and wrong ones do not."""
    plan = small_plan(stored, ">u2", axes=axes)
    generate(tmp_path, plan)
    if stored is not StoreFormat.RAW:
        assert np.array_equal(_stored(samples(tmp_path)[1]), _turned(_expected(plan, 1), axes))
    truth = Truth.of(tmp_path / CATALOG_NAME)
    grid = ProcessGrid(spatial=(2, 1, 2), world_size=4, rank=3)
    for boundary in ("zero", "periodic"):
        data = VolumeDataset(tmp_path, grid=grid, halo=3, boundary=boundary)
        try:
            box, block = data.box(plan.spatial), data[1][0].numpy()
            assert truth.check(data.sample_ids[1], box, block, boundary=boundary) is None
            assert truth.check(data.sample_ids[0], box, block, boundary=boundary) is not None
            assert "1 channels" in str(truth.check(data.sample_ids[1], box, block[:1], boundary=boundary))
        finally:
            data.close()


@pytest.mark.few_cases(3)
@pytest.mark.parametrize(("stored", "codec"), CODECS)
def test_every_codec_is_used_and_reads_back(tmp_path: Path, stored: StoreFormat, codec: str) -> None:
    """Chunks and codec are those of the plan, by the file's own word, and the catalogue tells what they take."""
    plan = replace(small_plan(stored, "<i2", codec=codec), shape=(1, 64, 64, 64), samples=1)
    storage = replace(plan.storage, chunks=(1, 32, 32, 32))
    plan = replace(plan, storage=storage, contents=Contents(Kind.COUNTS, 1))
    report = generate(tmp_path, plan)
    path = samples(tmp_path)[0]
    assert np.array_equal(_stored(path), _expected(plan, 0))
    if stored is StoreFormat.HDF5:
        with h5py.File(path) as file:
            assert file["volume"].chunks == storage.chunks
            assert list(file["volume"]._filters) == FILTERS[codec]
    else:
        array = zarr.open_array(path, mode="r")
        assert array.chunks == storage.chunks
        text = json.dumps([str(part).lower() for part in array.compressors])
        assert all(word in text for word in codec.split("-")) if codec != "none" else text == "[]"
    entry = Catalog.read(report.catalog).entry(plan.name(0), stored.dataset)
    assert entry.stored_bytes == report.stored_bytes
    ratio = report.nbytes / report.stored_bytes
    if codec != "none":
        assert ratio == pytest.approx(plan.sample_bytes / plan.stored_sample_bytes(), rel=0.15)
        assert (1.7 if codec == "lz4" else 3) < ratio < 7
    else:
        assert 0.98 < ratio <= 1


def test_shards_and_unlike_channels(tmp_path: Path) -> None:
    """Shards are whole files, and parts that are cut at them along the slowest axis give one array."""
    storage = Storage(StoreFormat.ZARR3, "DHWC", (1, 4, 4, 5), (2, 8, 4, 10), Codec("blosc-zstd", 1))
    plan = DatasetPlan((2, 17, 8, 20), "<f4", storage, Contents(Kind.FLOATS, 3))
    generate(tmp_path, plan)
    array = zarr.open_array(samples(tmp_path)[0], mode="r")
    assert (array.chunks, array.shards) == ((4, 4, 5, 1), (8, 4, 10, 2))
    assert len(list(samples(tmp_path)[0].glob("c/*/*/*/*"))) == 3 * 2 * 2
    assert np.array_equal(np.asarray(array[...]), _turned(_expected(plan, 0), "DHWC"))


@pytest.mark.parametrize("axes", ["CDHW", "DHWC", "WHCD", "HCWD"])
@pytest.mark.parametrize("stored", [StoreFormat.NPY, StoreFormat.RAW, StoreFormat.HDF5])
def test_many_parts_of_one_file(
    tmp_path: Path, stored: StoreFormat, axes: str, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample that is written in parts, whose borders cut rows, is the same file as one written at once."""
    monkeypatch.setattr("voxload.benchmark.generate.plan.PART_BYTES", 300)
    plan = replace(small_plan(StoreFormat.RAW, "<i4", axes=axes), storage=Storage(stored, axes))
    assert len(list(plan.parts())) > 9
    told: list[Progress] = []
    generate(tmp_path, plan, progress=told.append)
    assert [progress.bytes_done for progress in told] == sorted({progress.bytes_done for progress in told})
    assert told[-1].bytes_done == told[-1].bytes_total == 2 * plan.sample_bytes
    found = _stored(samples(tmp_path)[1])
    assert found.tobytes() == _turned(_expected(plan, 1), axes).tobytes()


def test_without_channels(tmp_path: Path) -> None:
    """Samples of one channel may be stored without an axis for it."""
    plan = DatasetPlan((1, 6, 7, 8), "<f8", Storage(StoreFormat.NPY, "DHW"), Contents(Kind.FLOATS, 3), 2)
    generate(tmp_path, plan)
    assert _stored(samples(tmp_path)[0]).shape == (6, 7, 8)
    check_complete(tmp_path, plan)


def test_a_filter_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HDF5 has gzip of its own; that others need hdf5plugin is said before anything is written."""
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    with pytest.raises(UsageError, match=r"hdf5plugin.*voxload\[bench\]"):
        generate(tmp_path / "zstd", small_plan(StoreFormat.HDF5, codec="zstd"))
    assert not (tmp_path / "zstd").exists()
    assert generate(tmp_path / "gzip", small_plan(StoreFormat.HDF5, codec="shuffle-gzip")).written == 2


def test_growing(tmp_path: Path) -> None:
    """More samples of the same plan are added to those that are there."""
    plan = small_plan(StoreFormat.ZARR2)
    generate(tmp_path, plan)
    before = {path: path.stat().st_mtime_ns for path in samples(tmp_path)}
    report = generate(tmp_path, replace(plan, samples=3))
    assert (report.written, report.samples) == (1, 3)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    check_complete(tmp_path, replace(plan, samples=3))


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 1},
        {"dtype": "<u2"},
        {"contents": Contents(Kind.PATTERN, 8)},
        {"contents": Contents(Kind.COUNTS, 7)},
        {"shape": (2, 9, 8, 11)},
        {"storage": Storage(StoreFormat.HDF5, chunks=CHUNKS)},
    ],
)
def test_another_plan_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """A folder keeps one data set: what is there stays as it is."""
    plan = small_plan(StoreFormat.NPY)
    generate(tmp_path, plan)
    changed = replace(plan, **{"storage": Storage(StoreFormat.RAW), **change})
    with pytest.raises(UsageError, match="another plan"):
        generate(tmp_path, changed)
    check_complete(tmp_path, plan)


def test_what_others_made_is_left_alone(tmp_path: Path) -> None:
    """A folder with anything in it, a file in place of one, and a folder that is being written are refused."""
    plan = small_plan(StoreFormat.RAW)
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(UsageError, match=r"thesis\.txt"):
        generate(tmp_path, plan)
    with pytest.raises(UsageError, match="found a file"):
        generate(tmp_path / "thesis.txt", plan)
    (tmp_path / "busy").mkdir()
    with locked(tmp_path / "busy"), pytest.raises(UsageError, match="one at a time"):
        generate(tmp_path / "busy", plan)
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.txt", "busy"}
    with pytest.raises(UsageError, match="workers"):
        generate(tmp_path / "new", plan, workers=0)


def test_a_disk_that_is_too_small_is_refused(tmp_path: Path) -> None:
    """Before anything is written the error names the room that there is and the room that is needed."""
    storage = Storage(StoreFormat.ZARR3, chunks=(1, 32, 32, 32), codec=Codec("gzip"))
    plan = DatasetPlan((4, 1024, 1024, 1024), "<i2", storage, Contents(Kind.COUNTS), 100_000)
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(StorageError, match=r"room for .*iB.* expected .*iB .* for 100000 samples") as caught:
        generate(tmp_path / "new" / "data", plan)
    needed = int(str(caught.value).partition("expected")[2].partition("(")[2].partition(" bytes")[0])
    assert free < plan.sample_bytes * plan.samples / 6 < needed < plan.sample_bytes * plan.samples / 3
    assert not (tmp_path / "new").exists()


def test_damaged_plans_and_foreign_folders(tmp_path: Path) -> None:
    """A folder without a plan, a torn one, one of another version and a sample outside of it are named."""
    with pytest.raises(NotFoundError, match=PLAN_NAME):
        Truth.of(tmp_path)
    plan = small_plan(StoreFormat.RAW)
    generate(tmp_path, plan)
    whole = (tmp_path / PLAN_NAME).read_text()
    for text, found in (
        (whole[:40], "Truth|Expecting|delimiter|column|char"),
        (whole.replace("voxload-bench-data/1", "voxload-bench-data/9"), "schema 'voxload-bench-data/9'"),
        (whole.replace('"seed"', '"speed"'), "damaged plan"),
        (whole.replace('"raw"', '"tar"'), "damaged plan"),
        ("[]", "schema None"),
    ):
        (tmp_path / PLAN_NAME).write_text(text)
        with pytest.raises(DataError, match=found):
            Truth.of(tmp_path)
    (tmp_path / PLAN_NAME).write_text(whole)
    for sample in ("sample_00000002", "sample_1", "other"):
        with pytest.raises(DataError, match="no such sample"):
            Truth.of(tmp_path).check(sample, Box.whole(plan.spatial), _expected(plan, 0))
