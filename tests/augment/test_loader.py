"""Augmented samples through both loaders: epochs differ and repeat, transforms run as torch would run them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

import voxload
from tests.augment.samples import AXES, FIELDS, make
from voxload.augment import Augment, ClassCentres, CubeSymmetries, RandomCrop, Translations
from voxload.data.item_transforms import AsDict
from voxload.errors import UsageError

AUGMENT = Augment(Translations(), RandomCrop((4, 6, 4), centres=ClassCentres("y", keep=50)), CubeSymmetries(), seed=11)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of five samples of unequal extents."""
    path = tmp_path_factory.mktemp("samples")
    for index in range(5):
        make(path / f"s{index}.h5", (7 + index, 9, 8), seed=index)
    return path


def opened(folder: Path, **arguments: Any) -> voxload.VolumeDataset:
    """Return the samples as a data set, augmented unless told otherwise."""
    words = {"augment": AUGMENT, "boundary": "periodic", "halo": 1, **arguments}
    return voxload.VolumeDataset(f"{folder}/*.h5", fields=FIELDS, axes=AXES, **words)


@pytest.fixture
def data(folder: Path) -> Iterator[voxload.VolumeDataset]:
    """Yield the augmented samples as a data set."""
    found = opened(folder)
    yield found
    found.close()


def in_epoch(data: voxload.VolumeDataset, epoch: int) -> list[list[torch.Tensor]]:
    """Return each sample's fields as the data set reads them for an epoch."""
    found = []
    for index in range(len(data)):
        volumes = [np.empty(layout.shape, layout.dtype) for layout in data.layout(index)]
        data.read_into(index, volumes, epoch=epoch)
        found.append([torch.from_numpy(volume) for volume in volumes])
    return found


def joined(batches: list[Any]) -> list[Any]:
    """Return the samples of all batches, one after the other."""
    return [sample for batch in batches for sample in zip(*batch, strict=True)]


def same(ours: Any, theirs: Any) -> bool:
    """Compare batches of any form, to the last bit."""
    if isinstance(ours, torch.Tensor):
        return bool(ours.dtype == theirs.dtype and torch.equal(ours, theirs))
    if isinstance(ours, dict):
        return list(ours) == list(theirs) and all(same(ours[name], theirs[name]) for name in ours)
    return len(ours) == len(theirs) and all(map(same, ours, theirs))


@pytest.mark.parametrize("threads", [1, 3])
def test_epochs_differ_and_repeat(data: voxload.VolumeDataset, threads: int) -> None:
    """Each pass is the next epoch's draw, however many threads read it; another loader draws the same again."""
    loader = voxload.DataLoader(data, 2, num_workers=threads)
    passes = [list(loader) for _ in range(3)]
    for epoch, batches in enumerate(passes):
        assert same(joined(batches), in_epoch(data, epoch))
    assert not same(passes[0], passes[1])
    again = voxload.DataLoader(data, 3, num_workers=2)
    for batches in passes:
        assert same(joined(list(again)), joined(batches))
    loader.close()
    again.close()


def test_an_epoch_that_is_set_or_resumed_is_drawn_again(data: voxload.VolumeDataset, folder: Path) -> None:
    """What an epoch draws follows from its number: it is the same after `set_epoch`, and behind a saved state."""
    loader = voxload.DataLoader(data, 2)
    passes = [list(loader) for _ in range(3)]
    loader.set_epoch(1)
    batches = iter(loader)
    assert same(next(batches), passes[1][0])
    state = loader.state_dict()
    assert same(list(batches), passes[1][1:])
    assert same(list(loader), passes[2])
    elsewhere = opened(folder)
    resumed = voxload.DataLoader(elsewhere, 2)
    resumed.load_state_dict(state)
    assert same(list(resumed), passes[1][1:])
    assert same(list(resumed), passes[2])
    elsewhere.close()


@pytest.mark.long
def test_torchs_loader_augments_by_the_data_sets_epoch(folder: Path, data: voxload.VolumeDataset) -> None:
    """Worker processes of torch's own loader draw what this process draws, for the epoch that was set."""
    for epoch in (0, 4):
        data.set_epoch(epoch)
        batches = list(TorchLoader(data, None, num_workers=2))
        assert same(batches, in_epoch(data, epoch))
    copy = pickle.loads(pickle.dumps(data))  # noqa: S301 - its own bytes
    assert same(copy[2], in_epoch(data, 4)[2])
    copy.close()
    assert copy.fingerprint == data.fingerprint != opened(folder, augment=None).fingerprint


def noisy(item: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Change an item in place and draw from torch's own generator."""
    item[0].mul_(2)
    return (item[0].float() + torch.rand(()), *item[1:])


def _transform(name: str) -> Any:
    """Return a transform: a callable, or one of MONAI's from the same random state each time."""
    from monai.transforms.compose import Compose  # noqa: PLC0415 - takes seconds and 200 MiB
    from monai.transforms.intensity.array import RandGaussianNoise  # noqa: PLC0415 - as above
    from monai.transforms.spatial.dictionary import RandFlipd  # noqa: PLC0415 - as above

    if name == "callable":
        return noisy
    if name == "fields":
        return {"x": Compose([RandGaussianNoise(prob=1.0)]).set_random_state(7), "y": lambda labels: labels.long()}
    return AsDict(["x", "y", "v"], RandFlipd(keys=["x", "y"], prob=0.5, spatial_axis=0).set_random_state(7))


@pytest.mark.few_cases(6)
@pytest.mark.parametrize("transform", ["callable", "fields", "dictionary"])
@pytest.mark.parametrize("batch_size", [2, None])
def test_transforms_run_as_in_torchs_loader(folder: Path, transform: str, batch_size: int | None) -> None:
    """One item after the other in order, with the same random numbers, whatever is read ahead by how many threads."""
    found: list[list[Any]] = []
    for kind, threads in ((TorchLoader, 0), (voxload.DataLoader, 3)):
        torch.manual_seed(3)
        data = opened(folder, augment=Augment(RandomCrop(6)), transform=_transform(transform))
        loader: Any = kind(data, batch_size, shuffle=True, num_workers=threads)
        found.append([])
        for epoch in range(2):
            data.set_epoch(epoch)  # torch's loader does not know it; ours counts the same
            found[-1].append(list(loader))
        data.close()
    assert same(found[1], found[0])


def test_a_collate_function_gets_transformed_items(data: voxload.VolumeDataset, folder: Path) -> None:
    """A collate_fn sees what the transform made, as in torch's loader."""
    changed = opened(folder, transform=lambda item: int(item[1].sum()))
    batches = list(voxload.DataLoader(changed, 5, collate_fn=sum))
    assert batches == [sum(int(sample[1].sum()) for sample in in_epoch(data, 0))]
    changed.close()


def test_what_does_not_go_together_is_refused(folder: Path) -> None:
    """Transforms on both sides, and transforms of no field are errors."""
    changed = opened(folder, transform=noisy)
    for words in ({"transform": voxload.transforms.Log1p()}, {"device": "cpu"}):
        arguments: Any = words
        with pytest.raises(UsageError, match="found a data set with a transform of its own"):
            voxload.DataLoader(changed, **arguments)
    bad: Any
    for bad, message in (({"z": noisy}, "field 'z'"), ("log", "expected a callable"), ({"x": 3}, r"transform\['x'\]")):
        with pytest.raises(UsageError, match=message):
            opened(folder, transform=bad)
    with pytest.raises(UsageError, match="found an item of 3 parts"):
        opened(folder, transform=AsDict(["x", "y"], dict))[0]
