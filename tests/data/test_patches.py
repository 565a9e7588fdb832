"""Patches of large samples as data sets, against numpy and through the loader."""

from __future__ import annotations

from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import torch
import zarr
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, RandomSampler

import voxload
from voxload.augment import Augment, ClassCentres, CubeSymmetries, RandomCrop
from voxload.errors import DataError, UsageError

SHAPES = {"a": (9, 12, 10), "b": (7, 7, 21), "c": (6, 8, 8)}
"""Scans of unequal shapes."""


def scan(name: str) -> npt.NDArray[np.int16]:
    """Return a scan, each voxel of which is another number."""
    count = int(np.prod(SHAPES[name]))
    return (np.arange(count, dtype="<i2") + 7000 * (ord(name) - ord("a"))).reshape(SHAPES[name])


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three scans with labels."""
    folder = tmp_path_factory.mktemp("scans")
    for name, shape in SHAPES.items():
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file.create_dataset("ct", data=scan(name), chunks=(3, 4, 5), compression="gzip")
            labels = np.zeros(shape, "u1")
            labels[2, 3, 4] = 1
            labels[4, 1, 6] = 2
            file.create_dataset("labels", data=labels, chunks=(4, 4, 4))
    return folder


def place_of(patch: torch.Tensor, name: str) -> tuple[int, ...]:
    """Return where a patch was cut, and check that it is one."""
    whole = scan(name)
    start = np.argwhere(whole == patch[0, 0, 0, 0].item())[0]
    cut = whole[tuple(slice(lo, lo + size) for lo, size in zip(start, patch.shape[1:], strict=True))]
    assert np.array_equal(patch[0].numpy(), cut)
    return tuple(start.tolist())


def test_an_epoch_has_as_many_patches_as_are_asked_for(scans: Path) -> None:
    """Random patches of unequal scans: other places for each patch and each epoch, the same on every rank and again."""
    words: dict[str, Any] = {
        "fields": {"x": "ct", "y": "labels"},
        "patches": voxload.Patches((4, 3, 5), per_sample=20),
    }
    data = voxload.VolumeDataset(f"{scans}/*.h5", **words)
    assert len(data) == 60
    assert data.sample_ids[21] == "b[p1]"
    starts = [place_of(data[index][0], "abc"[index // 20]) for index in range(60)]
    assert len(set(starts[:20])) > 10
    again = voxload.VolumeDataset(f"{scans}/*.h5", **words)
    assert [place_of(again[index][0], "abc"[index // 20]) for index in range(60)] == starts
    again.set_epoch(1)
    assert [place_of(again[index][0], "abc"[index // 20]) for index in range(60)] != starts
    for index in (0, 25, 59):
        x, y = data[index]
        assert y.shape == x.shape == (1, 4, 3, 5)


def test_one_huge_volume_is_many_samples(tmp_path: Path) -> None:
    """The row of the table: an epoch of one volume is as long as there are patches, and shuffles."""
    stored = np.random.default_rng(0).integers(0, 99, (40, 40, 40)).astype("<u2")
    zarr.create_array(tmp_path / "huge.zarr", data=stored, chunks=(16, 16, 16))
    data = voxload.VolumeDataset(tmp_path / "huge.zarr", patches=voxload.Patches(8, per_sample=100))
    assert len(data) == 100
    with closing(voxload.DataLoader(data, batch_size=10, shuffle=True)) as loader:
        first = [batch[0].clone() for batch in loader]
        second = [batch[0].clone() for batch in loader]
    assert [len(batch) for batch in first] == [10] * 10
    found = {batch[place].numpy().tobytes() for batches in (first, second) for batch in batches for place in range(10)}
    assert len(found) > 190
    with closing(
        voxload.DataLoader(data, batch_size=10, sampler=RandomSampler(data, replacement=True, num_samples=300))
    ) as loader:
        drawn = {batch[0][place].numpy().tobytes() for batch in loader for place in range(10)}
    assert len(drawn) > 280


@pytest.mark.long
@given(
    shape=st.tuples(*[st.integers(1, 6)] * 3),
    stride=st.one_of(st.integers(1, 9), st.tuples(*[st.integers(1, 9)] * 3)),
)
def test_a_grid_covers_every_voxel(scans: Path, shape: tuple[int, int, int], stride: Any) -> None:
    """Patches of a grid begin a stride apart, and the last one ends with the sample; each is what numpy cuts."""
    data = voxload.VolumeDataset(f"{scans}/*.h5", fields={"x": "ct"}, patches=voxload.Patches(shape, stride=stride))
    steps = (stride,) * 3 if isinstance(stride, int) else stride
    expected = [
        (name, start)
        for name, extents in SHAPES.items()
        for start in product(
            *[
                sorted({*range(0, extent - size + 1, step), extent - size})
                for extent, size, step in zip(extents, shape, steps, strict=True)
            ]
        )
    ]
    assert len(data) == len(expected)
    for index in sorted({0, len(expected) // 3, len(expected) // 2, len(expected) - 1}):
        assert place_of(data[index][0], expected[index][0]) == expected[index][1]
    data.close()


def test_overlap_is_the_rest_of_a_stride() -> None:
    """Two words for one thing."""
    assert voxload.Patches((8, 8, 4), overlap=(2, 4, 0)).stride == (6, 4, 4)
    assert voxload.Patches(8, overlap=2).stride == (6, 6, 6)
    with pytest.raises(UsageError):
        voxload.Patches(8, overlap=8)


def test_fixed_patches_are_kept_like_any_sample(scans: Path) -> None:
    """A cache of patches of unequal scans: the same stream, and the storage is asked once."""
    data = voxload.VolumeDataset(f"{scans}/*.h5", fields={"x": "ct"}, patches=voxload.Patches(4, stride=3))
    expected = [batch[0] for batch in DataLoader(data, batch_size=5)]
    with closing(voxload.DataLoader(data, batch_size=5, cache=voxload.Cache(memory="64MiB"))) as loader:
        for _ in range(3):
            for batch, wanted in zip(loader, expected, strict=True):
                assert torch.equal(batch[0], wanted)
        read = loader.stats().bytes_read
    with closing(voxload.DataLoader(data, batch_size=5)) as loader:
        assert len(list(loader)) == len(expected)
        assert read <= loader.stats().bytes_read


def test_places_follow_from_the_seed(scans: Path) -> None:
    """Other numbers draw other places; an augmentation's own seed counts where there is one."""

    def drawn(seed: int, **words: Any) -> list[bytes]:
        patches = voxload.Patches(4, per_sample=4, seed=seed)
        data = voxload.VolumeDataset(f"{scans}/a.h5", fields={"x": "ct"}, patches=patches, **words)
        found = [data[index][0].numpy().tobytes() for index in range(len(data))]
        data.close()
        return found

    assert drawn(1) == drawn(1) != drawn(2)
    assert drawn(1, augment=Augment(CubeSymmetries(), seed=5)) == drawn(2, augment=Augment(CubeSymmetries(), seed=5))
    with pytest.raises(UsageError, match="seed"):
        drawn(-1)


def test_places_may_be_given(scans: Path) -> None:
    """Candidates of a detector, by scan; scans without any have no patch."""
    starts = {"a": [(0, 0, 0), (5, 9, 5)], "c": np.array([[2, 5, 3]])}
    data = voxload.VolumeDataset(f"{scans}/*.h5", fields={"x": "ct"}, patches=voxload.Patches((4, 3, 5), starts=starts))
    assert list(data.sample_ids) == ["a[p0]", "a[p1]", "c[p0]"]
    assert [place_of(data[index][0], name) for index, name in enumerate("aac")] == [(0, 0, 0), (5, 9, 5), (2, 5, 3)]
    outside = voxload.VolumeDataset(
        f"{scans}/*.h5", fields={"x": "ct"}, patches=voxload.Patches(4, starts={"a": [(6, 0, 0)]})
    )
    with pytest.raises(DataError, match="holds the window"):
        outside[0]


@pytest.mark.parametrize(
    "patches",
    [
        voxload.Patches(4, per_sample=3),
        voxload.Patches(4, stride=2),
        voxload.Patches(4, starts={"b": [(0, 0, 0), (1, 2, 3)]}),
        voxload.Patches(4, starts={"a": [(0, 0, 0)], "c": [(0, 0, 0), (2, 2, 2)]}),
    ],
)
def test_ids_in_their_order_are_those_of_the_indices(scans: Path, patches: voxload.Patches) -> None:
    """Also where a sample has no patch, and of those that are chosen."""
    data = voxload.VolumeDataset(f"{scans}/*.h5", fields={"x": "ct"}, patches=patches)
    every = [data.sample_ids[index] for index in range(len(data))]
    assert list(data.sample_ids) == every
    assert len(set(every)) == len(data)
    assert list(data.subset(range(0, len(data), 2)).sample_ids) == every[::2]


def test_patches_around_a_class(scans: Path) -> None:
    """The voxel of the class lies in every patch, and its labels are read once a scan, however many patches it has."""
    patches = voxload.Patches(3, per_sample=8, centres=ClassCentres("y", classes=(2,)))
    data = voxload.VolumeDataset(f"{scans}/*.h5", fields={"x": "ct", "y": "labels"}, patches=patches)
    assert all((data[index][1] == 2).any() for index in range(len(data)))
    with closing(voxload.DataLoader(data, batch_size=4)) as loader:
        assert all(bool((batch[1] == 2).flatten(1).any(1).all()) for batch in loader)


def test_patches_are_turned(scans: Path) -> None:
    """Other augmentation is done to each patch."""
    words: dict[str, Any] = {"fields": {"x": "ct"}, "augment": Augment(CubeSymmetries(), seed=3)}
    for patches in (voxload.Patches(4, per_sample=6), voxload.Patches(4, stride=4)):
        data = voxload.VolumeDataset(f"{scans}/a.h5", patches=patches, **words)
        plain = voxload.VolumeDataset(f"{scans}/a.h5", patches=patches, fields={"x": "ct"})
        for index in range(len(data)):
            turned = data[index][0][0].numpy()
            if patches.stride:
                assert sorted(turned.ravel().tolist()) == sorted(plain[index][0].numpy().ravel().tolist())
            values = np.sort(turned.ravel())
            assert values[0] in scan("a")
            assert len(np.unique(values)) == 64
    with pytest.raises(UsageError, match="one way to cut"):
        voxload.VolumeDataset(
            f"{scans}/a.h5",
            fields={"x": "ct"},
            patches=voxload.Patches(4, per_sample=2),
            augment=Augment(RandomCrop(4)),
        )


def test_ranks_share_each_patch(scans: Path) -> None:
    """The blocks of a group's ranks make up one patch, at random places too."""
    for patches in (voxload.Patches((4, 4, 6), per_sample=5), voxload.Patches((4, 4, 6), stride=5)):
        whole = voxload.VolumeDataset(f"{scans}/b.h5", fields={"x": "ct"}, patches=patches)
        parts = [
            voxload.VolumeDataset(
                f"{scans}/b.h5", fields={"x": "ct"}, patches=patches, grid=voxload.ProcessGrid((1, 1, 2), 2, rank)
            )
            for rank in range(2)
        ]
        for index in range(len(whole)):
            assert torch.equal(torch.cat([part[index][0] for part in parts], dim=-1), whole[index][0])


def test_patches_of_windows(tmp_path: Path) -> None:
    """Time and space at once."""
    stored = np.random.default_rng(2).random((6, 2, 8, 8, 8)).astype("<f4")
    np.save(tmp_path / "run.npy", stored)
    data = voxload.VolumeDataset(
        tmp_path / "run.npy",
        axes="TCDHW",
        window=voxload.Window(2, horizon=1),
        patches=voxload.Patches(4, stride=4),
    )
    assert len(data) == 4 * 8
    assert data.sample_ids[9] == "run[t1][p1]"
    x, y = data[9]
    assert np.array_equal(x.numpy(), stored[1:3, :, :4, :4, 4:])
    assert np.array_equal(y.numpy(), stored[3:4, :, :4, :4, 4:])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "no way to choose places"),
        ({"per_sample": 2, "stride": 3}, "per_sample and stride"),
        ({"per_sample": 0}, "per_sample"),
        ({"per_sample": 1.5}, "per_sample"),
        ({"stride": 0}, "three for"),
        ({"stride": 2, "pad": True}, "centres or pad with stride"),
        ({"starts": {"a": [(0, 0)]}}, "starts"),
        ({"starts": {"a": [(0.5, 0, 0)]}}, "starts"),
    ],
)
def test_contradictions_are_refused(words: dict[str, Any], message: str) -> None:
    """One way to choose places."""
    with pytest.raises(UsageError, match=message):
        voxload.Patches(4, **words)


@pytest.mark.parametrize(
    ("patches", "message"),
    [
        (voxload.Patches(7, stride=3), r"a sample of \(6, 8, 8\)"),
        (voxload.Patches(4, starts={"z": [(0, 0, 0)]}), "'z'"),
        (voxload.Patches(4, starts={}), "none in any sample"),
    ],
)
def test_patches_that_cannot_be_are_refused(scans: Path, patches: voxload.Patches, message: str) -> None:
    """When the list is made, and not in the middle of an epoch."""
    with pytest.raises(UsageError, match=message):
        voxload.VolumeDataset(f"{scans}/*.h5", fields={"x": "ct"}, patches=patches)
