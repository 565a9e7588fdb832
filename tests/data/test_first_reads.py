"""First reads: what a sample takes that was never read before, and that it is what its parts give one by one."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import torch

import voxload
from tests.support.settled import settle
from voxload.augment import Augment, Flips, RandomCrop
from voxload.catalog.table import Catalog, Entry
from voxload.data.layout import FieldLayout, new_blocks
from voxload.data.lists.samples import CatalogSamples, RecentSamples
from voxload.errors import DataError, UsageError
from voxload.readers.handles import Handles
from voxload.readers.protocol import Location, Volume

SHAPE = (2, 8, 9, 10)
COUNT = 70
"""More samples than are remembered."""


def _stored(index: int) -> npt.NDArray[np.int16]:
    return np.random.default_rng(index).integers(0, 900, SHAPE).astype("<i2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where HDF5 files of two volumes and a vector lie, and a catalogue of them."""
    found = tmp_path_factory.mktemp("first")
    entries: list[Entry] = []
    for index in range(COUNT):
        with h5py.File(found / f"{index:02}.h5", "w") as file:
            for name, values in (("x", _stored(index)), ("z", _stored(index) * 2)):
                file.create_dataset(name, data=values, chunks=(1, 4, 4, 10), compression="gzip")
                entries.append(Entry(f"{index:02}", f"{index:02}.h5", name, SHAPE, "<i2", "CDHW", 99, {"t": index / 2}))
            file["y"] = np.array([index, index + 0.5])
    Catalog.from_entries(entries, found).write(found / "catalog.parquet")
    settle(found)
    return found


class Careful(voxload.VolumeDataset):
    """Reads one thing after the other: a class with its own way is asked for each."""

    def layout(self, index: int) -> tuple[FieldLayout, ...]:
        """As the base."""
        return super().layout(index)


WAYS: list[dict[str, Any]] = [
    {"fields": {"x": "x"}},
    {"fields": {"x": "x", "z": "z"}, "targets": "t", "halo": 2, "boundary": "periodic"},
    {"fields": {"a": ["x", "z"]}, "halo": 1},
    {"fields": {"x": "x"}, "augment": Augment(RandomCrop(4), seed=3)},
    {"fields": {"x": "x"}, "augment": Augment(RandomCrop(4), Flips(), seed=3)},
]


@pytest.mark.few_cases(5)
@pytest.mark.parametrize("how", WAYS, ids=range(len(WAYS)))
def test_a_first_read_is_what_its_parts_give(folder: Path, how: dict[str, Any]) -> None:
    """The same layout, voxels, targets and cost; of any epoch and repeat."""
    data, other = (kind(folder / "catalog.parquet", **how) for kind in (voxload.VolumeDataset, Careful))
    for index, epoch, repeat in ((0, 0, 0), (COUNT - 1, 2, 0), (3, 1, 4), (-1, 0, 0)):
        rooms: list[tuple[FieldLayout, ...]] = []

        def room(layout: tuple[FieldLayout, ...], rooms: list[Any] = rooms) -> Sequence[Volume]:
            rooms.append(layout)
            return new_blocks(layout)

        layout, read = data.read_first(index, room, epoch=epoch, repeat=repeat)
        wanted, expected = other.read_first(index, room, epoch=epoch, repeat=repeat)
        assert read is not None
        assert expected is not None
        assert rooms == [layout, wanted]
        assert layout == wanted == data.layout(index)
        assert all(np.array_equal(one, two) for one, two in zip(read.volumes, expected.volumes, strict=True))
        assert read.cost == expected.cost
        targets = [one.targets for one in (read, expected) if one.targets is not None]
        assert len(targets) == (2 if "targets" in how else 0)
        assert not targets or torch.equal(*targets)


def test_without_room_nothing_is_read(folder: Path) -> None:
    """Its layout alone is told, and nothing is learnt of it."""
    for kind in (voxload.VolumeDataset, Careful):
        data = kind(folder / "catalog.parquet", fields={"x": "x"})
        assert data.read_first(0, lambda _: None) == (data.layout(0), None)
        assert not data.knows((0,))


def test_a_first_read_looks_once_at_each_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readers are taken once a field, and its rows are made once: each look costs a network file system a trip."""
    taken: Counter[str] = Counter()
    enter, sample = Handles.enter, CatalogSamples.sample

    def entered(self: Handles, location: Location) -> Any:
        taken[location.dataset] += 1
        return enter(self, location)

    def listed(self: CatalogSamples, index: int) -> Any:
        taken["rows"] += 1
        return sample(self, index)

    monkeypatch.setattr(Handles, "enter", entered)
    monkeypatch.setattr(CatalogSamples, "sample", listed)
    data = voxload.VolumeDataset(folder / "catalog.parquet", fields={"x": "x", "z": "z"}, targets="t")
    taken.clear()
    for index in range(5):
        _ = data[index]
    assert taken == {"x": 5, "z": 5, "rows": 5}
    assert data.knows(range(5))


def test_a_wrong_number_of_arrays_and_a_wrong_repeat_are_refused(folder: Path) -> None:
    """Whoever reads."""
    data = voxload.VolumeDataset(folder / "catalog.parquet", fields={"x": "x", "z": "z"})
    with pytest.raises(UsageError, match="1 arrays, expected 2 fields"):
        data.read_into(0, new_blocks(data.layout(0))[:1])
    with pytest.raises(UsageError, match="repeat: found -1"):
        data.read_into(0, new_blocks(data.layout(0)), repeat=-1)


def test_recent_samples_are_those_of_the_list(folder: Path) -> None:
    """However often and in whatever order they are asked for, from either end, and in a copy of another process."""
    data = voxload.VolumeDataset(folder / "catalog.parquet", fields={"x": "x"})
    recent = RecentSamples(data.samples)
    order = np.random.default_rng(1).integers(-COUNT, COUNT, 500).tolist()
    for found in (recent, pickle.loads(pickle.dumps(recent))):  # noqa: S301 - its own
        assert [found.at(index).id for index in order] == [f"{index % COUNT:02}" for index in order]
        with pytest.raises(IndexError):
            found.at(COUNT)
        with pytest.raises(UsageError, match="an integer"):
            found.at("0")  # type: ignore[arg-type]


def test_a_damaged_file_is_an_error_each_time(folder: Path, tmp_path: Path) -> None:
    """The first read of it, and the next."""
    path = tmp_path / "0.h5"
    path.write_bytes((folder / "00.h5").read_bytes()[:-900])
    data = voxload.VolumeDataset(os.fspath(path), fields={"x": "x"})
    for _ in range(2):
        with pytest.raises(DataError):
            _ = data[0]
