"""Subset, random_split and ConcatDataset of volumes: torch's samples, with all that a data set of volumes has."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, random_split
from torch.utils.data import DataLoader as TorchLoader

import voxload
from voxload.augment import Augment, CubeSymmetries, RandomCrop
from voxload.augment.window import ClassCentres
from voxload.catalog.table import Catalog, Entry
from voxload.errors import UsageError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of volumes, whose files have the same names in part."""
    place = tmp_path_factory.mktemp("parts")
    for number, name in enumerate(("a/0", "a/1", "a/2", "a/3", "a/4", "b/0", "b/1", "b/5")):
        path = place / f"{name}.h5"
        path.parent.mkdir(exist_ok=True)
        random = np.random.default_rng(number)
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=random.integers(0, 99, (6, 6, 6)).astype("<i2"), chunks=(3, 3, 3))
            file["y"] = random.integers(0, 3, (6, 6, 6)).astype("u1")
            file["target"] = [float(number)]
    return place


def volumes(place: Path, **words: Any) -> voxload.VolumeDataset:
    """Return a folder's data set."""
    return voxload.VolumeDataset(f"{place}/*.h5", fields={"x": "x", "y": "y"}, targets="target", **words)


AUGMENT = Augment(RandomCrop(3, centres=ClassCentres("y", classes=(2,))), CubeSymmetries(), seed=4)
WRAPPED: dict[str, Callable[[Path], Dataset[Any]]] = {
    "subset": lambda place: Subset(volumes(place / "a"), [4, 1, 1, 0]),
    "negative": lambda place: Subset(volumes(place / "a"), [-1, 0]),
    "random_split": lambda place: random_split(
        volumes(place / "a"), [0.6, 0.4], generator=torch.Generator().manual_seed(1)
    )[1],
    "of a subset": lambda place: Subset(Subset(volumes(place / "a"), [3, 2, 1]), [2, 0]),
    "concat": lambda place: ConcatDataset([volumes(place / "a"), volumes(place / "b")]),
    "concat of parts": lambda place: ConcatDataset([Subset(volumes(place / "b"), [1]), volumes(place / "a")]),
    "subset of concat": lambda place: Subset(volumes(place / "a") + volumes(place / "b"), [6, 0, 5]),
    "augmented": lambda place: Subset(volumes(place / "a", augment=AUGMENT), [3, 1]),
    "augmented concat": lambda place: ConcatDataset([volumes(place / one, augment=AUGMENT) for one in "ab"]),
    "transformed": lambda place: Subset(volumes(place / "a", transform={"x": _double}), [3, 1]),
    "by itself": lambda place: volumes(place / "a").subset([2, 4]),
}


def _double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", WRAPPED)
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_samples_are_torchs(folder: Path, kind: str, shuffle: bool) -> None:
    """Same samples, same order, same draws; read by threads, and with figures."""
    torch.manual_seed(5)
    expected = list(TorchLoader(WRAPPED[kind](folder), batch_size=2, shuffle=shuffle))
    torch.manual_seed(5)
    with closing(voxload.DataLoader(WRAPPED[kind](folder), batch_size=2, shuffle=shuffle)) as loader:
        found = [[part.clone() for part in batch] for batch in loader]
        assert loader.stats().samples == sum(len(batch[0]) for batch in expected)
    assert len(found) == len(expected)
    for batch, wanted in zip(found, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(batch, wanted, strict=True))


@pytest.mark.parametrize("kind", ["random_split", "concat", "subset of concat", "subset"])
def test_tiers_hold_for_parts(folder: Path, kind: str) -> None:
    """With a cache the stream is the same, and the storage is read once."""
    whole = list(voxload.DataLoader(WRAPPED[kind](folder), batch_size=1))
    with closing(
        voxload.DataLoader(WRAPPED[kind](folder), batch_size=1, cache=voxload.Cache(memory="16MiB"))
    ) as loader:
        for _ in range(3):
            for batch, wanted in zip(loader, whole, strict=True):
                assert all(torch.equal(a, b) for a, b in zip(batch, wanted, strict=True))
        read = loader.stats()
    with closing(voxload.DataLoader(WRAPPED[kind](folder), batch_size=1)) as loader:
        assert len(list(loader)) == len(whole)
        once = loader.stats()
    assert read.bytes_read <= once.bytes_read


def test_parts_of_a_state_are_told_apart(folder: Path) -> None:
    """A state of the training part is not one of the validation part."""
    first, second = random_split(volumes(folder / "a"), [3, 2])
    loader = voxload.DataLoader(first)
    next(iter(loader))
    other = voxload.DataLoader(second)
    with pytest.raises(UsageError):
        other.load_state_dict(loader.state_dict())


def test_a_condition_chooses_by_the_catalogue(folder: Path) -> None:
    """where= takes any column, those too that only the user knows."""
    entries = [
        Entry(
            sample=f"s{number}",
            path=f"a/{number}.h5",
            dataset="x",
            shape=(6, 6, 6),
            dtype="<i2",
            axes="DHW",
            stored_bytes=432,
        )
        for number in range(5)
    ]
    catalog = Catalog.from_entries(entries, folder)
    with_split = catalog.table.append_column("split", pa.array(["train", "val", "train", None, "train"]))
    data = voxload.VolumeDataset(Catalog(with_split, folder))
    assert tuple(data.subset(where="split == 'train'").sample_ids) == ("s0", "s2", "s4")
    assert tuple(data.subset(where="split == 'val' or sample == 's3'").sample_ids) == ("s1", "s3")
    assert torch.equal(data.subset(where="split == 'val'")[0][0], data[1][0])
    with pytest.raises(UsageError, match="no sample"):
        data.subset(where="split == 'test'")
    with pytest.raises(UsageError, match="splitt"):
        data.subset(where="splitt == 'test'")
    with pytest.raises(UsageError, match="no catalogue"):
        volumes(folder / "a").subset(where="split == 'train'")


@pytest.mark.parametrize(
    ("indices", "words"),
    [([5], "index 5"), ([-6], "index -6"), ([], "no sample"), ([0.5], "float64"), ([[0]], r"\(1, 1\)"), (["a"], "U1")],
)
def test_indices_of_no_sample_are_refused(folder: Path, indices: Any, words: str) -> None:
    """None becomes another one."""
    with pytest.raises(UsageError, match=words):
        volumes(folder / "a").subset(indices)


def test_a_mask_chooses(folder: Path) -> None:
    """As numpy's."""
    chosen = volumes(folder / "a").subset(np.array([True, False, False, True, False]))
    assert tuple(chosen.sample_ids) == ("0", "3")


def test_samples_of_equal_names_are_told_apart(folder: Path) -> None:
    """Two folders have files of the same name."""
    for second, ids in ((volumes(folder / "b"), ("0/4", "1/0")), (volumes(folder / "b").subset([2]), ("4", "5"))):
        read: Any = voxload.DataLoader(volumes(folder / "a") + second).dataset
        assert tuple(read.sample_ids)[4:6] == ids


class _Own(voxload.VolumeDataset):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[0] + 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda place: Subset(_Own(f"{place}/a/*.h5", fields={"x": "x"}), [0, 1]), "ways of its own"),
        (lambda place: volumes(place / "a") + volumes(place / "b", halo=1), "unequal halo"),
        (lambda place: volumes(place / "a") + volumes(place / "b", decode="stored"), "unequal decode"),
        (lambda place: volumes(place / "a") + TensorDataset(torch.zeros(2)), "other data sets"),
    ],
)
def test_what_only_torch_can_follow_is_told(folder: Path, make: Callable[[Path], Any], words: str) -> None:
    """One warning that says what is lost and what to do; the items are torch's."""
    with pytest.warns(UserWarning, match=rf"{words}.*without reader threads.*data\.subset"):
        loader = voxload.DataLoader(make(folder), batch_size=None)
    with pytest.raises(UsageError, match="another kind"):
        loader.stats()
    assert len(list(loader)) == len(make(folder))


def test_others_are_nobodys_business() -> None:
    """A Subset of tensors is torch's, without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = voxload.DataLoader(Subset(TensorDataset(torch.arange(4)), [3, 1]))
    assert [batch[0].item() for batch in loader] == [3, 1]
