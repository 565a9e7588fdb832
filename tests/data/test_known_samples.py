"""What is learnt of samples: the same voxels and targets as ever, by one call, as long as files are what they were."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import torch
import zarr
from torch.utils.data import default_collate

import voxload
from tests.support.settled import settle
from voxload.augment import Augment, CubeSymmetries
from voxload.data import known_samples
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.readers import maderead
from voxload.readers.chunks.chunkcache import set_chunk_cache
from voxload.readers.protocol import ReadCost, Volume

SHAPE = (2, 8, 9, 10)
COUNT = 5
Arrays = list[npt.NDArray[Any]]


def _stored(index: int) -> npt.NDArray[np.int16]:
    return np.random.default_rng(index).integers(0, 900, SHAPE).astype("<i2")


def _write(folder: Path, kind: str) -> list[str]:
    for index in range(COUNT):
        if kind == "npy":
            np.save(folder / f"{index}.npy", _stored(index))
        elif kind == "zarr":
            zarr.create_array(folder / f"{index}.zarr", data=_stored(index), chunks=(1, 4, 4, 10))
        else:
            with h5py.File(folder / f"{index}.h5", "w") as file:
                file.create_dataset("x", data=_stored(index), chunks=(1, 4, 4, 10), compression="gzip")
                file["y"] = np.array([index, index + 0.5])
    settle(folder)
    return sorted(os.fspath(path) for path in folder.iterdir())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of how many reads each call of the core made again."""
    seen: list[int] = []
    real = maderead.repeat

    def noted(reads: Sequence[tuple[int, int]]) -> int:
        seen.append(len(reads))
        return real(reads)

    monkeypatch.setattr(known_samples, "repeat", noted)
    return seen


def _items(data: voxload.VolumeDataset) -> list[tuple[torch.Tensor, ...]]:
    return [data[index] for index in range(len(data))]


def _equal(found: Sequence[tuple[torch.Tensor, ...]], expected: Sequence[tuple[torch.Tensor, ...]]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("boundary", ["zero", "periodic"])
@pytest.mark.parametrize("halo", [0, 2])
@pytest.mark.parametrize("kind", ["npy", "gzip", "zarr"])
def test_items_are_the_same_and_come_by_one_call(
    tmp_path: Path, calls: list[int], kind: str, halo: int, boundary: str
) -> None:
    """Each rank's blocks, with halo, are those of the first reading; what was handed out may be changed meanwhile."""
    files = _write(tmp_path, kind)
    for rank in range(4):
        grid = voxload.ProcessGrid((1, 2, 2), rank=rank, world_size=4)
        data = voxload.VolumeDataset(files, axes="CDHW", grid=grid, halo=halo, boundary=boundary)
        first = _items(data)
        kept = copy.deepcopy(first)
        assert not calls
        for (volume,) in first:
            volume.fill_(-1)
        _equal(_items(data), kept)
        assert calls == [1] * COUNT
        calls.clear()
        data.close()


def test_a_loader_reads_a_batch_by_one_call(tmp_path: Path, calls: list[int]) -> None:
    """From the second epoch on; torch's own loader finds the same batches, targets too."""
    files = _write(tmp_path, "gzip")
    data = voxload.VolumeDataset(files, fields={"x": "x"}, targets=["y"], axes="CDHW")
    expected = [default_collate([(torch.from_numpy(_stored(i)), torch.tensor([i, i + 0.5])) for i in part])
                for part in ([0, 1, 2], [3, 4])]  # fmt: skip
    loader = voxload.DataLoader(data, batch_size=3, num_workers=1)
    for _ in range(3):
        for batch, other in zip(loader, expected, strict=True):
            assert all(torch.equal(a, b.to(a.dtype)) for a, b in zip(batch, other, strict=True))
    assert set(calls) == {3, 2}
    assert sum(calls) >= 2 * COUNT


@pytest.mark.parametrize("kind", ["npy", "gzip"])
def test_a_file_that_is_written_anew_is_an_error(tmp_path: Path, calls: list[int], kind: str) -> None:
    """As it is of a data set that has the file open; opened anew, it has its new voxels."""
    files = _write(tmp_path, kind)
    data = voxload.VolumeDataset(files, fields={"x": "x"} if kind == "gzip" else None, axes="CDHW")
    _items(data)
    _items(data)
    assert calls == [1] * COUNT
    Path(files[2]).replace(files[1])
    for _ in range(2):
        with pytest.raises(DataError, match=Path(files[1]).name):
            data[1]
    os.truncate(files[3], 300)
    with pytest.raises(DataError, match=Path(files[3]).name):
        data[3]
    assert np.array_equal(data[0][0].numpy(), _stored(0))
    data.close()
    assert np.array_equal(data[1][0].numpy(), _stored(2))


def test_a_sample_that_often_fails_is_not_learnt_again(tmp_path: Path, calls: list[int]) -> None:
    """It would be read twice each time."""
    files = _write(tmp_path, "npy")
    data = voxload.VolumeDataset(files, axes="CDHW")
    for mode in (0o600, 0o640) * 3:
        Path(files[0]).chmod(mode)
        settle(tmp_path)
        assert np.array_equal(data[0][0].numpy(), _stored(0))
    assert len(calls) == 6  # twice each, to find out which of a batch did not come
    data[1], data[1]
    assert len(calls) == 7


class _Turned(voxload.VolumeDataset):
    """Reads another sample than is asked for."""

    def read_into(self, index: int, volumes: Sequence[Volume], **which: int | None) -> ReadCost:
        """See VolumeDataset."""
        return super().read_into(len(self) - 1 - index, volumes, **which)


def test_what_reads_in_another_way_is_asked_each_time(tmp_path: Path, calls: list[int]) -> None:
    """A subclass with a method of its own, a method that was put in its place, and what is augmented."""
    files = _write(tmp_path, "npy")
    turned = _Turned(files, axes="CDHW")
    for _ in range(2):
        assert np.array_equal(turned[0][0].numpy(), _stored(COUNT - 1))
    plain = voxload.VolumeDataset(files, axes="CDHW")
    plain[0], plain[0]
    assert calls == [1]

    def other(index: int, volumes: Sequence[Volume], **which: Any) -> ReadCost:
        del index, which
        volumes[0][...] = 4
        return ReadCost()

    plain.read_into = other  # type: ignore[method-assign]
    assert (plain[0][0] == 4).all()
    augmented = voxload.VolumeDataset(files, axes="CDHW", augment=Augment(CubeSymmetries(), seed=1))
    augmented[0], augmented[0]
    assert calls == [1]


def test_settings_that_change_how_files_are_read(tmp_path: Path, calls: list[int]) -> None:
    """Direct reads, and a cache of decoded chunks, are what they are set for."""
    data = voxload.VolumeDataset(_write(tmp_path, "gzip"), fields={"x": "x"}, axes="CDHW")
    data[0], data[0]
    assert calls == [1]
    set_chunk_cache(2**20)
    try:
        assert np.array_equal(data[0][0].numpy(), _stored(0))
        assert calls == [1]
    finally:
        set_chunk_cache(0)
    data.halo = voxload.geometry.Halo.parse(1)
    assert data[0][0].shape == (2, 10, 11, 12)
    assert calls == [1]


def test_copies_know_nothing(tmp_path: Path, calls: list[int]) -> None:
    """Addresses are this process's; a copy learns anew."""
    data = voxload.VolumeDataset(_write(tmp_path, "npy"), axes="CDHW")
    data[0], data[0]
    for other in (pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):  # noqa: S301 - our own
        calls.clear()
        other[0]
        assert not calls
        other[0]
        assert calls == [1]


def test_what_is_learnt_is_bounded(tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the budget samples are read as ever."""
    monkeypatch.setattr(known_samples, "BUDGET", 1)
    data = voxload.VolumeDataset(_write(tmp_path, "npy"), axes="CDHW")
    for _ in range(3):
        _items(data)
    assert calls == [1, 1]


@pytest.mark.parametrize("wrong", [1.0, [1], slice(0, 1)])
def test_what_is_no_index_is_refused_as_ever(tmp_path: Path, wrong: Any) -> None:
    """A number that equals that of a known sample, and what has no hash."""
    data = voxload.VolumeDataset(_write(tmp_path, "npy"), axes="CDHW")
    loader = voxload.DataLoader(data, batch_sampler=[[0], [1], [wrong]])
    for _ in range(3):
        batches = iter(loader)
        assert np.array_equal(next(batches)[0][0].numpy(), _stored(0))
        next(batches)
        with pytest.raises(UsageError, match="expected an integer"):
            next(batches)
    with pytest.raises(UsageError, match="expected an integer"):
        data[wrong]


def test_a_file_that_goes_while_it_is_learnt_is_read_all_the_same(
    tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read is handed out; what is known of it gives nothing, for the core looks whether the file is there."""
    files = _write(tmp_path, "npy")
    data = voxload.VolumeDataset(files, axes="CDHW")

    def may_learn(index: int) -> bool:
        data.close()
        Path(files[index]).unlink()
        return True

    monkeypatch.setattr(data._repeats.known, "may_learn", may_learn)
    assert np.array_equal(data[0][0].numpy(), _stored(0))
    with pytest.raises(NotFoundError, match=Path(files[0]).name):
        data[0]
    assert calls == [1, 1]
    assert not data.knows((0,))
