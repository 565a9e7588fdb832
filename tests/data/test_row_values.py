"""Columns of the catalogue in items and batches: as torch's own loader would collate them, whoever reads."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader, Subset

import voxload
from voxload.errors import DataError, NotFoundError, UsageError

COUNT, SHAPE = 7, (6, 5, 8)
NAMES = ("sample", "dose", "visit", "site", "widths", "grid", "is_child", "day")


def _others() -> dict[str, pa.Array]:
    """Return columns of each kind, a row a sample."""
    numbers = range(COUNT)
    return {
        "dose": pa.array([0.1 * number for number in numbers], pa.float64()),
        "visit": pa.array(list(numbers), pa.int32()),
        "site": pa.array([f"s{number % 3}" for number in numbers], pa.string()).dictionary_encode(),
        "widths": pa.array([[1.5, 0.5, 0.1 * number] for number in numbers], pa.list_(pa.float64())),
        "grid": pa.array([[number, 2] for number in numbers], pa.list_(pa.int64(), 2)),
        "is_child": pa.array([number % 2 == 0 for number in numbers], pa.bool_()),
        "day": pa.array([dt.date(2026, 1, 1 + number) for number in numbers], pa.date32()),
    }


def _written(folder: Path, others: dict[str, pa.Array]) -> Path:
    """Write volumes, and their catalogue in an order that is not that of the ids."""
    order = np.random.default_rng(2).permutation(COUNT)
    for number in range(COUNT):
        with h5py.File(folder / f"p{number}.h5", "w") as file:
            file["ct"] = np.random.default_rng(number).integers(-99, 99, SHAPE).astype("<i2")
            file["ct"].attrs["gain"] = [number, 0.5]
            file.attrs["scanner"] = f"s{number}"
    columns: dict[str, pa.Array] = {
        "sample": pa.array([f"p{number}" for number in range(COUNT)]),
        "path": pa.array([f"p{number}.h5" for number in range(COUNT)]),
        "dataset": pa.array(["ct"] * COUNT),
        "shape": pa.array([list(SHAPE)] * COUNT, pa.list_(pa.int64())),
        "dtype": pa.array(["<i2"] * COUNT),
        "axes": pa.array(["DHW"] * COUNT),
        "stored_bytes": pa.array([2 * 240] * COUNT, pa.int64()),
        **others,
    }
    pq.write_table(pa.table(columns).take(pa.array(order)), folder / "catalog.parquet")
    return folder / "catalog.parquet"


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """Return a catalogue with columns of each kind."""
    return _written(tmp_path, _others())


def _equal(one: Any, other: Any) -> bool:
    """Tell whether two batches are the same: types, shapes and values."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and one.equal(other)
    if isinstance(one, dict):
        return (
            isinstance(other, dict) and one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
        )
    if isinstance(one, list | tuple):
        return isinstance(other, list | tuple) and len(one) == len(other) and all(map(_equal, one, other))
    return bool(type(one) is type(other) and one == other)


def test_an_item_says_what_its_row_says(catalog: Path) -> None:
    """Each value is that of the sample's own row, in the type of its kind."""
    data = voxload.VolumeDataset(catalog, targets="dose", columns=NAMES)
    for number in range(COUNT):
        volume, target, name, dose, visit, site, spacing, grid, is_child, day = data[number]
        assert volume.shape == (1, *SHAPE)
        assert target.tolist() == [np.float32(0.1 * number)]
        assert (name, visit, site, is_child, day) == (
            f"p{number}", number, f"s{number % 3}", number % 2 == 0, f"2026-01-{1 + number:02}",
        )  # fmt: skip
        assert type(dose) is float
        assert dose == 0.1 * number
        assert _equal(spacing, torch.tensor([1.5, 0.5, 0.1 * number], dtype=torch.float64))
        assert _equal(grid, torch.tensor([number, 2]))
    data.close()


def _negated(item: tuple[Any, ...]) -> dict[str, Any]:
    """Return an item as a dictionary, as transforms of other libraries do."""
    return {"x": -item[0], "name": item[-2], "widths": item[-1]}


def _seconds(items: list[Any]) -> list[Any]:
    return [item[1:] for item in items]


MADE: dict[str, dict[str, Any]] = {
    "whole samples": {},
    "with targets": {"targets": ["dose", "visit"]},
    "patches of a grid": {"patches": voxload.Patches((3, 5, 4), stride=(3, 5, 4))},
    "patches at random places": {"patches": voxload.Patches(4, per_sample=2, seed=5)},
    "an item transform": {"transform": _negated},
}
LOADED: dict[str, dict[str, Any]] = {
    "batches": {"batch_size": 3},
    "one by one": {"batch_size": None},
    "two threads": {"batch_size": 2, "num_workers": 2},
    "a process": {"batch_size": 2, "readers": "process"},
    "a cache": {"batch_size": 2, "cache": voxload.Cache(memory=1 << 20)},
    "a collate_fn": {"batch_size": 2, "collate_fn": _seconds},
}


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("loaded", LOADED)
@pytest.mark.parametrize("made", MADE)
def test_batches_are_those_of_torchs_loader(catalog: Path, made: str, loaded: str) -> None:
    """Text comes as lists, numbers and lists of them as tensors, in the order of the samples."""
    data = voxload.VolumeDataset(catalog, columns=["sample", "widths", "ct@gain", "@scanner"], **MADE[made])
    options = LOADED[loaded]
    plain = {name: value for name, value in options.items() if name in ("batch_size", "collate_fn")}
    if made == "an item transform" and loaded == "a collate_fn":
        plain = options = {"batch_size": 2}
    is_drawn_anew = made == "patches at random places"
    with closing(voxload.DataLoader(data, **options)) as loader:
        for _ in range(1 if is_drawn_anew else 2):  # as read, and as kept
            expected = list(DataLoader(data, **plain))
            count = 0
            for found, wanted in zip(loader, expected, strict=True):
                assert _equal(found, wanted)
                count += 1
            assert count == len(expected)
    data.close()


def test_parts_of_data_sets_keep_their_rows(catalog: Path) -> None:
    """Subsets, conditions and torch's wrappers have the values of their own samples."""
    data = voxload.VolumeDataset(catalog, columns="sample")
    chosen: dict[str, Callable[[], Any]] = {
        "indices": lambda: data.subset([5, 1]),
        "a condition": lambda: data.subset(where="visit > 4"),
        "torch's": lambda: Subset(data, [3, 0]),
    }
    names = {}
    for name, make in chosen.items():
        with closing(voxload.DataLoader(make(), 2)) as loader:
            names[name] = next(iter(loader))[1]
    assert names == {"indices": ["p5", "p1"], "a condition": ["p5", "p6"], "torch's": ["p3", "p0"]}
    data.close()


def test_files_without_a_catalogue_have_ids(catalog: Path) -> None:
    """Ids need no catalogue; windows and patches have their own."""
    folder = catalog.parent
    data = voxload.VolumeDataset(f"{folder}/p*.h5", columns="sample")
    assert [data[number][1] for number in range(2)] == ["p0", "p1"]
    data.close()
    patches = voxload.VolumeDataset(f"{folder}/p*.h5", columns="sample", patches=voxload.Patches(4, per_sample=2))
    assert [patches[number][1] for number in range(3)] == ["p0[p0]", "p0[p1]", "p1[p0]"]
    patches.close()
    with pytest.raises(NotFoundError, match="no catalogue that has it"):
        voxload.VolumeDataset(f"{folder}/p*.h5", columns=["sample", "dose"])


def test_attributes_are_those_of_each_file(catalog: Path) -> None:
    """What h5py reads is in the item; the loop's thread finds it read, and a file that was written anew has its own."""
    data = voxload.VolumeDataset(f"{catalog.parent}/p*.h5", columns=["ct@gain", "@scanner"])
    for number in range(COUNT):
        _, gain, scanner = data[number]
        assert (gain.tolist(), gain.dtype, scanner) == ([number, 0.5], torch.float64, f"s{number}")
    data.close()
    with h5py.File(catalog.parent / "p3.h5", "r+") as file:
        file.attrs["scanner"] = "another"
    data[3][0].zero_()
    assert data[3][2] == "another"
    gain = data[3][1]
    gain.zero_()  # an item's own
    assert data[3][1].tolist() == [3, 0.5]
    again = pickle.loads(pickle.dumps(data))  # noqa: S301 - our own
    assert again[2][2] == "s2"
    for each in (data, again):
        each.close()
    absent = voxload.VolumeDataset(f"{catalog.parent}/p*.h5", columns="ct@gian")
    with pytest.raises(NotFoundError, match=r"p0\.h5:ct@gian: .*gain"):
        absent[0]
    with closing(voxload.DataLoader(absent, 2)) as loader, pytest.raises(NotFoundError, match="ct@gian"):
        list(loader)
    absent.close()


def test_columns_that_cannot_be_handed_out(tmp_path: Path) -> None:
    """A column that is not there, of another kind, or without a value is an error that names it."""
    others = _others() | {
        "widths": pa.array([None, *[[1.0]] * (COUNT - 1)], pa.list_(pa.float64())),
        "note": pa.array([{"a": 1}] * COUNT),
        "part": pa.array([[1.0, None]] * COUNT, pa.list_(pa.float64())),
    }
    catalog = _written(tmp_path, others)
    with pytest.raises(NotFoundError, match="column 'dosage'"):
        voxload.VolumeDataset(catalog, columns="dosage")
    with pytest.raises(UsageError, match="column 'note'"):
        voxload.VolumeDataset(catalog, columns="note")
    data = voxload.VolumeDataset(catalog, columns="widths")
    with pytest.raises(DataError, match="sample 'p0'"):
        data[0]
    assert data[1][1].tolist() == [1.0]
    some = data.subset(where="widths != null")
    assert len(some) == COUNT - 1
    with closing(voxload.DataLoader(data, 2)) as loader, pytest.raises(DataError, match="column 'widths'"):
        list(loader)
    with closing(voxload.DataLoader(some, 2)) as loader:
        assert len(list(loader)) == 3
    odd = voxload.VolumeDataset(catalog, columns="part")
    with pytest.raises(DataError, match="column 'part'"):
        odd[0]
    odd.close()
    data.close()
