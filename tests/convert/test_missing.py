"""Voxels that were never written: masks without their zero chunks are converted when asked, and read where listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import numpy.typing as npt
import pytest
import zarr

import voxload
from voxload.catalog.table import Catalog, Entry
from voxload.cli.main import run
from voxload.convert import ConvertOptions, Hints, convert
from voxload.errors import DataError, UsageError
from voxload.verification import verify

SHAPE, CHUNK = (16, 16, 16), (4, 4, 4)
KINDS: dict[str, dict[str, Any]] = {
    "v2 blosc": {"zarr_format": 2, "chunks": CHUNK},
    "v2 by zarr-python": {"zarr_format": 2, "chunks": CHUNK, "filters": [numcodecs.Delta("u1")]},
    "v3 plain": {"chunks": CHUNK, "compressors": None},
    "v3 zstd": {"chunks": CHUNK},
    "v3 sharded": {"chunks": CHUNK, "shards": (8, 8, 8)},
}
"""Arrays of zarr-python, which by default stores no chunk that is all fill value."""


def mask() -> npt.NDArray[np.uint8]:
    """Return a label mask that is nearly all background."""
    voxels = np.zeros(SHAPE, "u1")
    voxels[5:7, 4:11, 6:12] = np.arange(1, 43, dtype="u1").reshape(1, 7, 6)
    return voxels


def stored(folder: Path, kind: str, *, fill_value: Any = 0) -> Path:
    """Write a mask; some chunks, and of a sharded one whole shards, are left out."""
    folder.mkdir(exist_ok=True)
    path = folder / "mask.zarr"
    zarr.create_array(path, shape=SHAPE, dtype="u1", fill_value=fill_value, **KINDS[kind])[...] = mask()
    assert len(chunks(path)) < (8 if "sharded" in kind else 64)
    return path


def chunks(path: Path) -> list[Path]:
    """Return the files of an array's chunks or shards."""
    return sorted(part for part in path.rglob("*") if part.is_file() and not part.name.startswith((".z", "zarr.json")))


def voxels(folder: Path) -> npt.NDArray[Any]:
    """Return the one volume of a converted folder."""
    found: npt.NDArray[Any] = voxload.VolumeDataset(folder)[0][0].numpy()[0]
    return found


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_is_converted_when_asked(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The refusal names the option, the option helps, and what is written lacks no chunk: one that goes is missed."""
    path, out = stored(tmp_path / "raw", kind), tmp_path / "out"
    assert run(["convert", f"{path}", f"{out}"]) == 1
    assert "--missing fill" in capsys.readouterr().err
    assert run(["convert", f"{path}", f"{out}", "--missing", "fill", "--verify", "--chunks", "8,8,8"]) == 0
    np.testing.assert_array_equal(voxels(out), mask())
    (converted,) = out.glob("*.zarr")
    array = zarr.open_group(converted, mode="r")[next(zarr.open_group(converted, mode="r").array_keys())]
    assert array.nchunks_initialized == array.nchunks  # type: ignore[union-attr]
    chunks(converted)[-1].unlink()
    with pytest.raises(DataError, match="no chunk"):
        voxels(out)


def test_what_was_filled_is_told_and_no_other_wish_is_taken_for_it(tmp_path: Path) -> None:
    """The manifest says it; a run that wants an error is not content with the earlier volume, and leaves it there."""
    path, out = stored(tmp_path / "raw", "v3 zstd"), tmp_path / "out"
    assert convert(path, out, options=ConvertOptions(missing="fill")).converted
    assert convert(path, out, options=ConvertOptions(missing="fill")).skipped
    (converted,) = out.glob("*.zarr")
    manifest = json.loads((converted / "zarr.json").read_text())["attributes"]["voxload"]
    assert manifest["parts"][0]["attributes"]["voxels_never_written"] == "fill"
    with pytest.raises(DataError, match="convert --missing fill"):
        convert(path, out)
    np.testing.assert_array_equal(voxels(out), mask())
    with pytest.raises(UsageError, match="missing: found 'zero'"):
        ConvertOptions(missing="zero")


@pytest.mark.parametrize("is_chunked", [True, False])
def test_hdf5_that_was_never_written(tmp_path: Path, is_chunked: bool) -> None:
    """Chunks, and contiguous storage that was never set aside, get the data set's own fill value."""
    path, out = tmp_path / "x.h5", tmp_path / "out"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", SHAPE, "<i2", chunks=CHUNK if is_chunked else None, fillvalue=7)
        if is_chunked:
            made[4:8] = 1
        expected = made[...]
    with pytest.raises(DataError, match="convert --missing fill"):
        convert(path, out)
    convert(path, out, options=ConvertOptions(missing="fill", verify=True))
    np.testing.assert_array_equal(voxels(out), expected)


def test_records_that_were_never_written(tmp_path: Path) -> None:
    """One of many samples in a dataset."""
    path, out = tmp_path / "x.h5", tmp_path / "out"
    with h5py.File(path, "w") as file:
        file["labels"] = np.arange(2)
        file.create_dataset("records", (2, *SHAPE), "<i2", chunks=(1, *CHUNK))[0] = 3
    with pytest.raises(DataError, match="never written"):
        convert(path, out)
    convert(path, out, options=ConvertOptions(missing="fill"))
    found = voxload.VolumeDataset(out)
    assert [int(found[index][0].unique()) for index in range(2)] == [3, 0]


def catalogued(path: Path, dtype: str = "|u1") -> Path:
    """Write a catalogue of an array that somebody else stored."""
    entry = Entry("mask", path.name, "", shape=SHAPE, dtype=dtype, axes="DHW", stored_bytes=1)
    Catalog.from_entries([entry], path.parent).write(path.parent / "catalog.parquet")
    return path.parent


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_catalogue_that_lists_every_chunk_is_read_by_default(tmp_path: Path, kind: str) -> None:
    """Checksums that somebody had recorded with ``fill`` know which chunks never were; one that goes is an error."""
    path = stored(tmp_path / "raw", kind)
    folder = catalogued(path)
    with pytest.raises(DataError, match='missing="fill"'):
        voxels(folder)
    assert verify(folder, write=True).damaged
    report = verify(folder, write=True, missing="fill")
    assert (report.damaged, report.recorded) == (0, 1)
    np.testing.assert_array_equal(voxels(folder), mask())
    assert verify(folder).damaged == 0
    chunks(path)[-1].unlink()
    with pytest.raises(DataError, match=r"no chunk .*CRC-32C"):
        voxels(folder)


def test_hdf5_chunks_that_a_catalogue_lists_as_never_written(tmp_path: Path) -> None:
    """The same of HDF5, which is opened twice: the second time from what is known of it."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", SHAPE, "u1", chunks=CHUNK, fillvalue=9)[4:8] = 1
        expected = file["x"][...]
    entry = Entry("x", path.name, "x", shape=SHAPE, dtype="|u1", axes="DHW", stored_bytes=1)
    Catalog.from_entries([entry], tmp_path).write(tmp_path / "catalog.parquet")
    with pytest.raises(DataError, match="never written"):
        voxels(tmp_path)
    assert verify(tmp_path, write=True, missing="fill").recorded == 1
    for _ in range(2):
        np.testing.assert_array_equal(voxels(tmp_path), expected)


@pytest.mark.long
def test_no_fill_value_is_guessed(tmp_path: Path) -> None:
    """Format 2 may name none: the list of chunks does not say then what stands in their place."""
    path = stored(tmp_path / "raw", "v2 blosc")
    metadata = path / ".zarray"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "fill_value": None}))
    folder = catalogued(path)
    assert verify(folder, write=True, missing="fill").recorded == 1
    with pytest.raises(DataError, match='missing="fill"'):
        voxels(folder)
    np.testing.assert_array_equal(voxload.VolumeDataset(folder, missing="fill")[0][0][0].numpy(), mask())


def test_hints_reach_every_format_that_has_chunks(tmp_path: Path) -> None:
    """A universe in a layout that is known more closely than as HDF5."""
    path, out = tmp_path / "u.hdf5", tmp_path / "out"
    with h5py.File(path, "w") as file:
        file["unitPar"] = np.linspace(-1, 1, 4)
        file.create_dataset("full", (16, 16, 16, 4), "<i2", chunks=(4, 4, 4, 4))[:4] = 5
    options = ConvertOptions(hints=Hints(axes="DHWC"), missing="fill")
    convert(path, out, options=options)
    found = voxload.VolumeDataset(out)[0][0].numpy()
    assert (found[:, :4] == 5).all()
    assert not found[:, 4:].any()
