"""Random crops: one for a group, inside the sample, around voxels of drawn classes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import voxload
from tests.augment.samples import Stored, assembled, cropped, make, of_all_ranks
from tests.support import processes
from voxload.augment import Augment, ClassCentres, CubeSymmetries, RandomCrop, Translations
from voxload.augment.draws import Draws
from voxload.augment.window import ClassVoxels
from voxload.data.labels import ClassSearch, hashed
from voxload.errors import UsageError
from voxload.geometry import Boundary, Box, Halo, slabs

SIZES = st.tuples(*[st.integers(3, 9)] * 3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(
    size=SIZES,
    spatial=st.tuples(*[st.integers(1, 2)] * 3),
    halo=st.builds(Halo, st.tuples(*[st.integers(0, 3)] * 3), st.tuples(*[st.integers(0, 3)] * 3)),
    epoch=st.integers(0, 99),
    options=st.sets(st.sampled_from(["centred", "turned"])),
    boundary=st.sampled_from(Boundary),
)
def test_crops_of_all_ranks_make_one_slice(
    cube: Stored,
    size: tuple[int, int, int],
    spatial: tuple[int, int, int],
    halo: Halo,
    epoch: int,
    options: set[str],
    boundary: Boundary,
) -> None:
    """The blocks of a crop, with what lies around it in the sample, make that part of the sample, turned."""
    crop = RandomCrop(size, centres=ClassCentres("y", keep=5) if "centred" in options else None)
    parts: list[Any] = [crop, *([CubeSymmetries()] if "turned" in options else [])]
    parts += [Translations()] if boundary is Boundary.PERIODIC else []
    augment = Augment(*parts, seed=2)
    found = of_all_ranks(cube, spatial, augment=augment, epoch=epoch, halo=halo, boundary=boundary)
    voxels = searched(cube, crop.centres, augment.key(0)) if crop.centres else None
    placement = augment.place((9, 9, 9), epoch=epoch, index=0, found=voxels)
    assert placement.extents == size
    for place, field in enumerate(cube.whole):
        whole = cropped(cube.whole[field], placement, halo, boundary)
        blocks = [(box, blocks[place]) for box, blocks in found]
        assert np.array_equal(assembled(blocks, size, halo), whole)


def searched(sample: Stored, centres: ClassCentres, key: int, most: int = 10**6) -> ClassVoxels:
    """Return what is remembered of a sample whose labels are looked at in slabs of so many voxels."""
    labels = sample.whole["y"][0]
    search = ClassSearch(centres, labels.shape, key=key)
    for part in slabs(Box.whole(labels.shape), (4, 3, 5), most=most):
        search.look(labels[part.slices], part)
    return search.result()


@pytest.mark.long  # to import MONAI takes longer than all other tests of this file
@given(
    extents=st.tuples(*[st.integers(1, 12)] * 3),
    size=st.tuples(*[st.integers(1, 12)] * 3),
    seed=st.integers(0, 9),
)
def test_centres_are_moved_inside_as_monai_does(
    extents: tuple[int, int, int], size: tuple[int, int, int], seed: int
) -> None:
    """A crop around a voxel lies where MONAI's RandCropByLabelClasses would put it."""
    from monai.transforms.croppad.array import SpatialCrop  # noqa: PLC0415 - takes seconds and 200 MiB
    from monai.transforms.utils import correct_crop_centers  # noqa: PLC0415 - as above

    draws = Draws(seed)
    centre = tuple(draws.below(n) for n in extents)
    crop = RandomCrop(size)
    if any(n < m for n, m in zip(extents, size, strict=True)):
        with pytest.raises(UsageError, match="found extents"):
            crop.start(extents, draws, centre)
        return
    volume = torch.arange(prod(extents)).reshape(1, *extents)
    moved = correct_crop_centers(list(centre), size, extents)
    theirs = np.asarray(SpatialCrop(roi_center=moved, roi_size=size)(volume))
    start = crop.start(extents, draws, centre)
    ours = volume[(slice(None), *(slice(lo, lo + n) for lo, n in zip(start, size, strict=True)))]
    assert np.array_equal(ours.numpy(), theirs)


def test_crops_lie_anywhere_as_often(cube: Stored) -> None:
    """Without centres every place inside is as likely, and none is outside."""
    augment = Augment(RandomCrop((7, 8, 9)), seed=4)
    starts = [augment.place((9, 9, 9), epoch=epoch, index=0).window.start for epoch in range(1200)]
    places, counts = np.unique(starts, axis=0, return_counts=True)
    assert places.tolist() == [[d, h, 0] for d in range(3) for h in range(2)]
    assert ((counts - 200) ** 2 / 200).sum() < 20.5  # chi-square of 5 degrees of freedom, once in a thousand
    assert cube.open(augment=augment).volume_shape(0) == (7, 8, 9)


@pytest.mark.long
def test_classes_are_balanced_and_voxels_of_each_fair(cube: Stored) -> None:
    """Each class is drawn as often as its weight says, and each voxel of the class as often as the others."""
    labels = np.zeros((9, 9, 9), np.uint8)
    labels[2, 3, 4:8], labels[5:7, 5:7, 5:7] = 1, 7
    path = cube.path.with_name("rare.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("labels", data=labels, chunks=(4, 4, 4))
    for weights, shares in (
        (None, (1 / 3, 1 / 3, 1 / 3)),
        ((1, 2, 1), (0.25, 0.5, 0.25)),
        ((0, 1, 3), (0, 0.25, 0.75)),
    ):
        centres = ClassCentres("y", classes=(0, 1, 7), weights=weights)
        augment = Augment(RandomCrop(1, centres=centres), seed=1)
        data = voxload.VolumeDataset(path, fields={"y": "labels"}, augment=augment)
        volume = [np.empty((1, 1, 1, 1), np.uint8)]
        drawn = []
        for epoch in range(300):
            data.read_into(0, volume, epoch=epoch)
            drawn.append(int(volume[0][0, 0, 0, 0]))
        data.close()
        counts = [drawn.count(label) for label in (0, 1, 7)]
        expected = [share * 300 for share in shares]
        pairs = [(found, wanted) for found, wanted in zip(counts, expected, strict=True) if wanted]
        assert counts[0] == 0 or expected[0]
        assert sum((found - wanted) ** 2 / wanted for found, wanted in pairs) < 13.8  # 2 degrees, once in a thousand
    search = ClassSearch(ClassCentres("y", classes=[1]), labels.shape, key=3)
    search.look(labels, Box.whole(labels.shape))
    voxels = search.result()
    places = [voxels.draw(ClassCentres("y", classes=[1]), Draws(0, n)) for n in range(800)]
    found, often = np.unique([place for place in places if place], axis=0, return_counts=True)
    assert found.tolist() == [[2, 3, w] for w in range(4, 8)]
    assert ((often - 200) ** 2 / 200).sum() < 16.3  # 3 degrees


@pytest.mark.parametrize("size", [1, 4])
def test_centres_move_with_the_sample(cube: Stored, size: int) -> None:
    """A crop of a sample that was translated and turned still lies around a voxel of the class, boundary or not."""
    labels = cube.whole["y"][0]
    rare = np.argwhere(labels == 3)[::40]
    marked = np.zeros_like(labels)
    marked[tuple(rare.T)] = 1
    path = cube.path.with_name("marked.h5")
    with h5py.File(path, "w") as file:
        file["labels"] = marked
    crop = RandomCrop(size, centres=ClassCentres("y", classes=[1]))
    augment = Augment(Translations(), crop, CubeSymmetries(), seed=1)
    data = voxload.VolumeDataset(path, fields={"y": "labels"}, boundary="periodic", augment=augment)
    volume = [np.empty((1, size, size, size), np.uint8)]
    for epoch in range(60):
        data.read_into(0, volume, epoch=epoch)
        assert volume[0].any()
    data.close()


@given(most=st.integers(1, 800), keep=st.integers(1, 300), key=st.integers(0, 2**64 - 1))
def test_what_is_remembered_does_not_depend_on_the_slabs(cube: Stored, most: int, keep: int, key: int) -> None:
    """Of each class the voxels of least hash are kept, however its labels are cut to be looked at."""
    labels = cube.whole["y"].reshape(-1)
    found = searched(cube, ClassCentres("y", keep=keep), key, most)
    hashes = hashed(np.arange(labels.size, dtype=np.uint64), np.uint64(key))
    assert len(set(hashes.tolist())) == labels.size
    for label in range(4):
        of_class = np.flatnonzero(labels == label)
        least = np.sort(of_class[np.argsort(hashes[of_class])[:keep]])
        assert np.array_equal(found.voxels[label], least)


def test_kept_voxels_are_a_fair_sample() -> None:
    """Over many samples, each voxel of a class is kept as often as the others."""
    labels = np.ones((4, 5, 6), np.int32)
    counts = np.zeros(labels.size)
    for index in range(600):
        search = ClassSearch(ClassCentres("y", keep=12), labels.shape, key=Augment(RandomCrop(1)).key(index))
        search.look(labels, Box.whole(labels.shape))
        counts[search.result().voxels[1]] += 1
    # Hypergeometric draws of 12 of 120: the variance is 0.9 of the binomial's mean.
    assert ((counts - 60) ** 2 / 54).sum() / 119 < 1.45


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "<u8"])
def test_labels_of_any_integer_type_are_found(dtype: str) -> None:
    """Booleans, negative labels and labels far apart are classes too."""
    limits = np.iinfo(dtype) if dtype != "?" else None
    values = [0, 1] if limits is None else [limits.min, 1, limits.max]
    labels = np.array(values, dtype).repeat(4).reshape(1, -1, 2)
    search = ClassSearch(ClassCentres("y"), labels.shape, key=0)
    search.look(labels, Box.whole(labels.shape))
    found = search.result()
    assert list(found.voxels) == sorted(values)
    assert all(len(voxels) == 4 for voxels in found.voxels.values())
    assert found.draw(ClassCentres("y", classes=[77]), Draws(0)) is None


def test_a_sample_without_the_classes_is_cropped_anywhere(cube: Stored) -> None:
    """Labels that lack a class are fine; with none of them the crop is what it is without centres."""
    data = cube.open(augment=Augment(RandomCrop(3, centres=ClassCentres("y", classes=[9])), seed=6))
    plain = cube.open(augment=Augment(RandomCrop(3), seed=6))
    assert all(np.array_equal(a, b) for a, b in zip(data[0], plain[0], strict=True))
    data.close()
    plain.close()


def test_samples_may_differ_and_small_ones_are_named(tmp_path: Path) -> None:
    """Crops of one size come of samples of several; one that is too small is refused by name, or padded."""
    small = make(tmp_path / "a-small.h5", (5, 9, 6), seed=1)
    make(tmp_path / "b-large.h5", (12, 9, 10), seed=2)
    fields = {"x": "full"}
    augment = Augment(RandomCrop((4, 8, 6)))
    data = voxload.VolumeDataset(f"{tmp_path}/*.h5", fields=fields, axes="DHWC", augment=augment)
    assert [data[index][0].shape for index in range(2)] == [(2, 4, 8, 6)] * 2
    data.close()
    for pad in (False, True):
        crop = RandomCrop((8, 8, 8), pad=pad)
        data = voxload.VolumeDataset(f"{tmp_path}/*.h5", fields=fields, axes="DHWC", augment=Augment(crop))
        if pad:
            padded = data[0][0].numpy()
            middle = padded[:, 1:6, :, 1:7]
            start = Augment(crop).place((5, 9, 6), epoch=0, index=0).window.start
            assert start[0] == start[2] == -1
            assert np.array_equal(middle, small.whole["x"][:, :, start[1] : start[1] + 8])
            assert np.count_nonzero(padded) <= 2 * 5 * 8 * 6
        else:
            with pytest.raises(UsageError, match=r"sample 'a-small': RandomCrop: found extents \(5, 9, 6\)"):
                data[0]
        assert data[1][0].shape == (2, 8, 8, 8)
        data.close()


def test_labels_are_read_once_within_a_budget(cube: Stored) -> None:
    """The labels are read at the first use only, and a budget below one of their chunks is refused."""
    augment = Augment(RandomCrop(4, centres=ClassCentres("y", budget=60)), seed=6)
    data = cube.open(augment=augment)
    volumes = [np.empty(layout.shape, layout.dtype) for layout in data.layout(0)]
    first, second = (data.read_into(0, volumes, epoch=0) for _ in range(2))
    data.close()
    assert first.decoded_bytes - second.decoded_bytes == 3 * 3 * 2 * 60  # every chunk once
    data = cube.open(augment=Augment(RandomCrop(4, centres=ClassCentres("y", budget=59))))
    with pytest.raises(UsageError, match="found a budget of 59 B, expected 60 B or more for one chunk"):
        data[0]
    data.close()


def test_threads_find_the_same(cube: Stored) -> None:
    """Many threads that want one sample at once each get what one alone gets."""
    augment = Augment(RandomCrop((4, 5, 6), centres=ClassCentres("y", keep=7)), seed=8)
    alone = cube.open(augment=augment)
    expected = [[part.numpy().copy() for part in item] for item in map(alone.__getitem__, [0] * 2)]
    data = cube.open(augment=augment)
    barrier = threading.Barrier(4)

    def read(_: int) -> list[Any]:
        barrier.wait(timeout=processes.LIMIT)
        return [part.numpy() for part in data[0]]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(read, range(4)):
            assert all(np.array_equal(a, b) for a, b in zip(found, expected[0], strict=True))
    alone.close()
    data.close()


def test_wrong_crops_are_refused(cube: Stored) -> None:
    """Sizes, classes and weights that mean nothing, and labels that are none, are errors."""
    bad: Any
    for bad in (0, (1, 2), "4", (1.5, 2, 2)):
        with pytest.raises(UsageError, match="size of RandomCrop"):
            RandomCrop(bad)
    for words, expected in (
        ({"classes": []}, "labels, each once"),
        ({"classes": [1, 1]}, "labels, each once"),
        ({"weights": [1.0]}, "with classes given"),
        ({"classes": [1, 2], "weights": [0, 0]}, "one above 0"),
        ({"keep": 0}, "1 or more"),
        ({"budget": "8G"}, "not a number of bytes"),
    ):
        arguments: Any = words
        with pytest.raises(UsageError, match=expected):
            ClassCentres("y", **arguments)
    with pytest.raises(UsageError, match="field 'z'"):
        cube.open(augment=Augment(RandomCrop(3, centres=ClassCentres("z"))))
    for field in ("x", "v"):
        data = cube.open(augment=Augment(RandomCrop(3, centres=ClassCentres(field))))
        with pytest.raises(UsageError, match="expected one channel of integer labels"):
            data[0]
        data.close()
    search = ClassSearch(ClassCentres("y"), (40, 40, 1), key=0)
    with pytest.raises(UsageError, match="more than 1024 labels"):
        search.look(np.arange(1600).reshape(40, 40, 1), Box.whole((40, 40, 1)))
