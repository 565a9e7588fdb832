"""Crops are read as others of the same sample were: the same voxels and costs as ever, by one call of the core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import torch
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import RandomSampler

import voxload
from tests.laws.reader import EXAMPLES
from tests.support.settled import settle
from voxload.augment import Augment, ClassCentres, Flips, RandomCrop
from voxload.data import known_samples
from voxload.data.known_samples import ReadSample
from voxload.data.open_sample import OpenSample
from voxload.errors import DataError
from voxload.readers.protocol import ReadCost, Volume

SHAPE = (20, 18, 22)
Array = npt.NDArray[Any]


def _voxels(seed: int, shape: Sequence[int] = SHAPE) -> Array:
    return np.random.default_rng(seed).integers(0, 900, tuple(shape)).astype("<i2")


def _hdf5(path: Path, stored: Array, chunks: Sequence[int], **how: Any) -> str:
    with h5py.File(path.with_suffix(".h5"), "w") as file:
        file.create_dataset("x", data=stored, chunks=tuple(chunks), **how)
    return os.fspath(path.with_suffix(".h5"))


def _zarr(path: Path, stored: Array, chunks: Sequence[int], *, is_sharded: bool = False, **how: Any) -> str:
    shards: dict[str, Any] = {"shards": tuple(2 * extent for extent in chunks)} if is_sharded else {}
    zarr.create_array(path.with_suffix(".zarr"), data=stored, chunks=tuple(chunks), **shards, **how)
    return os.fspath(path.with_suffix(".zarr"))


Write = Callable[[Path, Array, Sequence[int]], str]
KINDS: dict[str, Write] = {
    "hdf5 gzip": lambda path, stored, chunks: _hdf5(path, stored, chunks, compression="gzip", shuffle=True),
    "zarr": _zarr,
    "zarr raw": lambda path, stored, chunks: _zarr(path, stored, chunks, compressors=None),
    "zarr sharded": lambda path, stored, chunks: _zarr(path, stored, chunks, is_sharded=True),
    "zarr sharded raw": lambda path, stored, chunks: _zarr(path, stored, chunks, is_sharded=True, compressors=None),
}


class AsEver(voxload.VolumeDataset):
    """Has a way of its own to read, which is the same, so that nothing is learnt."""

    def read_into(self, index: int, volumes: Sequence[Volume], **which: int | None) -> ReadCost:
        """See VolumeDataset."""
        return super().read_into(index, volumes, **which)


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield a list of how many blocks were read by each call of the core; everything else about it is as ever."""
    seen: list[int] = []
    real = known_samples._repeat_together

    def noted(wanted: Sequence[Any]) -> int:
        seen.append(len(wanted))
        return real(wanted)

    monkeypatch.setattr(known_samples, "_repeat_together", noted)
    yield seen
    seen.clear()


def _fields(path: str) -> dict[str, str]:
    return {"x": "x" if path.endswith(".h5") else ""}


def _same(first: voxload.VolumeDataset, second: voxload.VolumeDataset, *, epochs: int = 3) -> None:
    """Compare items, and what a loader counts."""
    for epoch in range(epochs):
        for data in (first, second):
            data.set_epoch(epoch)
        for index in range(len(first)):
            for one, other in zip(first[index], second[index], strict=True):
                assert torch.equal(one, other)
    counted = []
    for data in (first, second):
        with closing(voxload.DataLoader(data, 3, num_workers=2)) as loader:
            batches = [[part.clone() for part in batch] for _ in range(3) for batch in loader]
            counted.append((batches, loader.stats().bytes_read))
    for one_batch, other_batch in zip(counted[0][0], counted[1][0], strict=True):
        assert all(torch.equal(one, other) for one, other in zip(one_batch, other_batch, strict=True))
    assert counted[0][1] == counted[1][1]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_patches_are_cut_where_they_were_drawn(tmp_path: Path, calls: list[int], kind: str) -> None:
    """Of two volumes, in all epochs; nearly all of them by one call of the core."""
    paths = [KINDS[kind](tmp_path / str(seed), _voxels(seed), (8, 5, 6)) for seed in range(2)]
    settle(tmp_path)
    how: dict[str, Any] = {"axes": "DHW", "patches": voxload.Patches((6, 7, 4), per_sample=8, seed=3)}
    data = voxload.VolumeDataset(paths, fields=_fields(paths[0]), **how)
    _same(data, AsEver(paths, fields=_fields(paths[0]), **how))
    assert sum(calls) >= 16 * 5
    assert max(calls) == 3
    volumes = [_voxels(seed) for seed in range(2)]
    for index in range(len(data)):
        block = data[index][0].numpy()[0]
        views = np.lib.stride_tricks.sliding_window_view(volumes[index // 8], block.shape)
        assert (views == block).all((3, 4, 5)).any()


LEAD = {"DHW": (), "CDHW": (3,), "DHWC": (3,), "WHD": (), "TCDHW": (4, 2), "NDHW": (3,)}


@st.composite
def _cases(draw: st.DrawFn) -> dict[str, Any]:
    """Draw everything that says where the blocks of crops are."""
    axes = draw(st.sampled_from(sorted(LEAD)))
    spatial = [draw(st.integers(5, 14)) for _ in range(3)]
    by_axis = dict(zip("DHW", spatial, strict=True)) | dict(
        zip((a for a in axes if a in "NTC"), LEAD[axes], strict=True)
    )
    return {
        "axes": axes,
        "shape": [by_axis[axis] for axis in axes],
        "chunks": [draw(st.integers(1, by_axis[axis])) for axis in axes],
        "crop": [draw(st.integers(1, extent)) for extent in spatial],
        "halo": draw(st.integers(0, 2)),
        "boundary": draw(st.sampled_from(("zero", "periodic"))),
        "ranks": draw(st.sampled_from(((1, 1, 1), (1, 2, 1), (2, 1, 2)))),
        "kind": draw(st.sampled_from(sorted(KINDS))),
        "seed": draw(st.integers(0, 5)),
        "missing": draw(st.sampled_from(("error", "fill"))),
    }


@pytest.mark.long
@settings(max_examples=2 * EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=_cases())
def test_any_block_of_a_crop(tmp_path_factory: pytest.TempPathFactory, case: dict[str, Any]) -> None:
    """Axes in any order, time steps and channels, halos that reach out, ranks, boundaries."""
    folder = tmp_path_factory.mktemp("x")
    path = KINDS[case["kind"]](folder / "0", _voxels(1, case["shape"]), case["chunks"])
    settle(folder)
    ranks, size = case["ranks"], int(np.prod(case["ranks"]))
    crop = [max(extent, count) for extent, count in zip(case["crop"], ranks, strict=True)]
    window = voxload.Window(2, step=1, horizon=1) if "T" in case["axes"] else None
    for rank in range(size):
        how: dict[str, Any] = {
            "fields": _fields(path),
            "axes": case["axes"],
            "grid": voxload.ProcessGrid(ranks, rank=rank, world_size=size),
            "halo": case["halo"],
            "boundary": case["boundary"],
            "missing": case["missing"],
            "window": window,
            "patches": voxload.Patches(crop, per_sample=3, seed=case["seed"]),
        }
        first, second = voxload.VolumeDataset(path, **how), AsEver(path, **how)
        for epoch in range(3):
            first.set_epoch(epoch)
            second.set_epoch(epoch)
            for index in range(len(first)):
                assert all(torch.equal(*pair) for pair in zip(first[index], second[index], strict=True))
        first.close()
        second.close()


def test_a_sample_that_is_drawn_again_is_cut_elsewhere(tmp_path: Path, calls: list[int]) -> None:
    """A sampler with replacement gives other crops each time, those of a data set that learns nothing."""
    path = KINDS["zarr"](tmp_path / "0", _voxels(0), (8, 5, 6))
    settle(tmp_path)
    made: list[list[torch.Tensor]] = []
    for kind in (voxload.VolumeDataset, AsEver):
        data = kind(path, axes="DHW", augment=Augment(RandomCrop((4, 5, 6)), seed=2))
        sampler = RandomSampler(data, replacement=True, num_samples=24, generator=torch.Generator().manual_seed(1))
        with closing(voxload.DataLoader(data, 4, sampler=sampler, num_workers=2)) as loader:
            made.append([batch[0].clone() for _ in range(2) for batch in loader])
    assert all(torch.equal(*pair) for pair in zip(*made, strict=True))
    assert len({one.numpy().tobytes() for batch in made[0] for one in batch}) > 40
    assert 4 in calls


@pytest.mark.long
def test_crops_around_classes_targets_and_subsets(tmp_path: Path, calls: list[int]) -> None:
    """Two fields, places that follow from labels, targets of each file, and samples that were chosen and joined."""
    paths = []
    for seed in range(3):
        with h5py.File(tmp_path / f"{seed}.h5", "w") as file:
            file.create_dataset("x", data=_voxels(seed), chunks=(8, 5, 6), compression="gzip")
            labels = (_voxels(seed) > 880).astype(np.uint8)
            file.create_dataset("labels", data=labels, chunks=(4, 9, 11), compression="lzf")
            file["y"] = np.array([seed, seed + 0.5])
        paths.append(os.fspath(tmp_path / f"{seed}.h5"))
    settle(tmp_path)
    centres = ClassCentres("labels", classes=[1])
    how: dict[str, Any] = {
        "fields": {"x": "x", "labels": "labels"},
        "targets": ["y"],
        "axes": "DHW",
        "patches": voxload.Patches((3, 4, 5), per_sample=4, centres=centres),
    }
    pairs = [kind(paths, **how) for kind in (voxload.VolumeDataset, AsEver)]
    _same(*pairs)
    assert 6 in calls
    chosen = [data.subset([7, 2, 9, 8, 3, 0]) for data in pairs]
    _same(*chosen)
    for index in range(6):
        assert chosen[0][index][1].any()


def test_what_cannot_be_learnt_is_tried_ever_more_seldom(
    tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Voxels far apart in one file are not read again so; a file that was written a moment ago will be later."""
    np.save(tmp_path / "x.npy", _voxels(0, (64, 64, 64)))
    settle(tmp_path)
    data = voxload.VolumeDataset(tmp_path / "x.npy", axes="DHW", patches=voxload.Patches((60, 60, 1), per_sample=40))
    tried: list[int] = []
    made = OpenSample.made

    def noted(self: OpenSample, read: ReadSample) -> Any:
        tried.append(index)
        return made(self, read)

    monkeypatch.setattr(OpenSample, "made", noted)
    for index in range(40):
        _ = data[index]
    assert tried == [0, 2, 6, 14, 30]
    assert not calls


def test_what_is_turned_is_not_learnt(tmp_path: Path, calls: list[int]) -> None:
    """Nor what is padded: a crop that is larger than its sample."""
    path = KINDS["zarr"](tmp_path / "0", _voxels(0), (8, 5, 6))
    settle(tmp_path)
    turned = Augment(RandomCrop(4), Flips(), seed=1)
    padded = Augment(RandomCrop((30, 4, 4), pad=True), seed=1)
    for augment in (turned, padded):
        data, other = (kind(path, axes="DHW", augment=augment) for kind in (voxload.VolumeDataset, AsEver))
        _same(data, other)
    assert not calls


def test_chunks_that_were_never_written(tmp_path: Path) -> None:
    """They have the fill value, or are an error, whatever was learnt of others."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = file.create_dataset("x", shape=SHAPE, dtype="<i2", chunks=(8, 5, 6), compression="gzip", fillvalue=5)
        made[:16] = _voxels(0)[:16]
    settle(tmp_path)
    path, expected = os.fspath(tmp_path / "x.h5"), _voxels(0)
    expected[16:] = 5
    how: dict[str, Any] = {"fields": {"x": "x"}, "axes": "DHW", "patches": voxload.Patches(4, per_sample=30)}
    data, other = (kind(path, missing="fill", **how) for kind in (voxload.VolumeDataset, AsEver))
    _same(data, other, epochs=2)
    data.set_epoch(0)
    strict, failed = voxload.VolumeDataset(path, **how), 0
    for index in range(30):
        block = data[index][0]
        try:
            assert torch.equal(strict[index][0], block)
        except DataError:
            assert (block == 5).any()
            failed += 1
    assert 0 < failed < 30


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_another_one(tmp_path: Path, kind: str) -> None:
    """New metadata, or a new shard or file, are never read by what was learnt of the old one."""
    path = KINDS[kind](tmp_path / "0", _voxels(0), (8, 5, 6))
    other = KINDS[kind](tmp_path / "1", _voxels(1), (8, 5, 6))
    settle(tmp_path)
    data = voxload.VolumeDataset(path, fields=_fields(path), axes="DHW", patches=voxload.Patches(SHAPE, per_sample=2))
    for index in (0, 1, 0):
        assert np.array_equal(data[index][0].numpy()[0], _voxels(0))
    if Path(path).is_file():
        Path(other).replace(path)
    else:
        Path(path).rename(tmp_path / "old.zarr")
        Path(other).rename(path)
    for index in (0, 1, 0):
        try:
            block = data[index][0].numpy()[0]
        except DataError:
            data.close()
            block = data[index][0].numpy()[0]
        assert np.array_equal(block, _voxels(1))


def test_a_batch_that_fails_counts_once(tmp_path: Path, calls: list[int]) -> None:
    """A file whose times change is learnt again, though all crops of a batch failed with it."""
    path = KINDS["hdf5 gzip"](tmp_path / "0", _voxels(0), (8, 5, 6))
    settle(tmp_path)
    data = voxload.VolumeDataset(path, fields={"x": "x"}, axes="DHW", patches=voxload.Patches(4, per_sample=8))
    arrays: list[Array] = [np.empty((8, 1, 4, 4, 4), np.int16)]
    indices = tuple(range(8))
    _ = data[0]
    assert data.read_again(indices, arrays) is not None
    Path(path).chmod(0o600)
    assert data.read_again(indices, arrays) is None
    assert not data.knows(indices)
    settle(tmp_path)
    _ = data[0]
    assert data.knows(indices)
    found = data.read_again(indices, arrays)
    assert found is not None
    assert all(torch.equal(torch.from_numpy(arrays[0][index]), data[index][0]) for index in indices)
    assert calls[-1] == 1


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("kind", ["zarr", "zarr raw"])
@pytest.mark.parametrize("harm", ["empty", "cut short", "gone", "a folder"])
def test_a_chunk_that_is_damaged_is_the_error_it_always_was(tmp_path: Path, kind: str, harm: str) -> None:
    """Word by word that of a data set that learns nothing, for each crop that touches it; others come."""
    path = KINDS[kind](tmp_path / "0", _voxels(0), (8, 5, 6))
    settle(tmp_path)
    how: dict[str, Any] = {"fields": {"x": ""}, "axes": "DHW", "patches": voxload.Patches(4, per_sample=60)}
    data, other = (of(path, **how) for of in (voxload.VolumeDataset, AsEver))
    for index in range(60):
        assert torch.equal(data[index][0], other[index][0])
    chunk = Path(path, "c", "1", "1", "1")
    if harm == "cut short":
        os.truncate(chunk, chunk.stat().st_size // 2)
    else:
        chunk.unlink()
    if harm == "empty":
        chunk.touch()
    if harm == "a folder":
        chunk.mkdir()
    said: list[list[str]] = [[], []]
    for found, of in zip(said, (data, other), strict=True):
        of.set_epoch(1)
        for index in range(60):
            try:
                block = of[index][0]
            except DataError as error:
                found.append(f"{index}: {error}")
            else:
                found.append(f"{index}: {block.sum()}")
    assert said[0] == said[1]
    assert 0 < sum("chunk" in one for one in said[0]) < 60
