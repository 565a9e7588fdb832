"""Kinds of samples that are made of pieces: others in every epoch, of unequal shapes, or with steps in common."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch.utils.data import Sampler, WeightedRandomSampler

import voxload
from tests.support.settled import settle
from voxload.augment import Augment, ClassCentres, CubeSymmetries, Flips, RandomCrop, Translations

SHAPES = ((12, 12, 12), (9, 14, 11), (16, 10, 12), (12, 12, 12))
STEPS = 7


def make(place: Path) -> None:
    """Write scans of unequal shapes, cubes of one shape, and a series of steps, all with labels or a vector."""
    rng = np.random.default_rng(5)
    for kind, shapes in (("scan", SHAPES), ("cube", [(12, 12, 12)] * 5)):
        for number, shape in enumerate(shapes):
            with h5py.File(place / f"{kind}{number}.h5", "w") as file:
                file.create_dataset("ct", data=rng.integers(-900, 900, shape, "<i2"), chunks=(4, 4, 4), compression=1)
                file.create_dataset("labels", data=(rng.random(shape) < 0.02).astype("u1"), chunks=(5, 4, 6))
                file.create_dataset("flow", data=rng.random((*shape, 3), "f4"))
    with h5py.File(place / "series.h5", "w") as file:
        file.create_dataset("u", data=rng.random((STEPS, 2, 8, 8, 8), "f4"), chunks=(3, 2, 8, 4, 8))
        file.create_dataset("mask", data=rng.integers(0, 2, (8, 8, 8), "u1"))
    for path in place.glob("*.h5"):
        settle(path)


AUGMENTS: dict[str, Any] = {
    "crop": lambda: Augment(RandomCrop((6, 5, 7)), seed=3),
    "turned crop": lambda: Augment(RandomCrop(6), CubeSymmetries(), seed=4, vectors={"v": (2, 1, 0)}),
    "centred crop": lambda: Augment(RandomCrop(5, centres=ClassCentres("y", classes=(1,), keep=20)), Flips(), seed=5),
    "padded crop": lambda: Augment(RandomCrop((13, 6, 15), pad=True), seed=6),
    "moved cube": lambda: Augment(Translations(), CubeSymmetries(), seed=7, vectors={"v": (2, 1, 0)}),
    "flipped scan": lambda: Augment(Flips(), seed=8),
}
FIELDS = {"x": "ct", "y": "labels", "v": "flow"}
AXES = {"v": "DHWC"}


def opened(folder: Path | str, kind: str, halo: int = 0, grid: Any = None) -> voxload.VolumeDataset:
    """Return a data set of a kind."""
    words: dict[str, Any] = {"halo": halo, "grid": grid}
    match kind:
        case "unequal scans":
            return voxload.VolumeDataset(f"{folder}/scan*.h5", fields=FIELDS, axes=AXES, **words)
        case "windows":
            parts = voxload.Window(3, horizon=1, stride=2)
            axes = {"u": "TCDHW"}
            return voxload.VolumeDataset(
                f"{folder}/series.h5", fields={"u": "u", "m": "mask"}, axes=axes, window=parts, **words
            )
        case "turned windows":
            return voxload.VolumeDataset(
                f"{folder}/series.h5",
                fields={"u": "u", "m": "mask"},
                axes={"u": "TCDHW"},
                window=voxload.Window(2, horizon=2),
                augment=Augment(CubeSymmetries(), seed=1),
                **words,
            )
        case "random patches":
            words["patches"] = voxload.Patches((6, 4, 8), per_sample=5)
            return voxload.VolumeDataset(f"{folder}/scan*.h5", fields=FIELDS, axes=AXES, **words)
        case "overlapping patches":
            words["patches"] = voxload.Patches((6, 5, 6), overlap=(2, 1, 3))
            return voxload.VolumeDataset(f"{folder}/scan*.h5", fields=FIELDS, axes=AXES, **words)
        case "overlapping patches of windows":
            return voxload.VolumeDataset(
                f"{folder}/series.h5",
                fields={"u": "u", "m": "mask"},
                axes={"u": "TCDHW"},
                window=voxload.Window(2, horizon=1),
                patches=voxload.Patches(5, stride=3),
                **words,
            )
        case "flipped patches":
            words |= {"patches": voxload.Patches(6, stride=4), "augment": Augment(Flips(), seed=2)}
            return voxload.VolumeDataset(f"{folder}/scan*.h5", fields=FIELDS, axes=AXES, **words)
        case "moved cube":
            words["boundary"] = "periodic"
    files = "cube" if kind in ("moved cube", "turned crop") else "scan"
    return voxload.VolumeDataset(f"{folder}/{files}*.h5", fields=FIELDS, axes=AXES, augment=AUGMENTS[kind](), **words)


PATCHED = ("random patches", "overlapping patches", "overlapping patches of windows", "flipped patches")
KINDS = ("unequal scans", "windows", "turned windows", *PATCHED, *AUGMENTS)
EVEN = (
    "windows",
    "turned windows",
    "random patches",
    "overlapping patches",
    "overlapping patches of windows",
    "crop",
    "turned crop",
    "centred crop",
    "padded crop",
    "moved cube",
)


class Unknown(Sampler[int]):
    """A sampler that nobody can replay, which draws with replacement.

    What an epoch draws does not depend on how much was drawn of the one before: with a cache a sampler that cannot be
    replayed is drawn when its epoch begins, and without one as the loop goes.
    """

    def __init__(self, samples: int) -> None:
        self._samples, self._turn = samples, 0

    def __len__(self) -> int:
        return self._samples

    def __iter__(self) -> Iterator[int]:
        self._turn += 1
        generator = torch.Generator().manual_seed(self._turn)
        yield from torch.randint(self._samples, (self._samples,), generator=generator).tolist()


def words_of(order: str, data: voxload.VolumeDataset, batch: int) -> dict[str, Any]:
    """Return arguments that choose an order, made anew each time: generators have a state."""
    generator = torch.Generator().manual_seed(9)
    match order:
        case "sequential":
            return {"batch_size": batch}
        case "weighted":
            sampler = WeightedRandomSampler([1.0] * len(data), len(data) + 3, generator=generator)
            return {"batch_size": batch, "sampler": sampler}
        case "drawn":
            return {"batch_size": batch, "sampler": Unknown(len(data))}
    return {"batch_size": batch, "shuffle": True, "generator": generator}


def epochs_of(
    loader: Any, lengths: tuple[int | None, ...], after: Callable[[], object] = lambda: None
) -> list[list[torch.Tensor]]:
    """Return the batches of epochs, each left after so many; `after` each of them something is done."""
    found = []
    for length in lengths:
        for batch in itertools.islice(loader, length):
            found.append([part.clone() for part in batch])
            for part in batch:
                part.zero_()  # a consumer may do with a batch what it likes
            after()
    return found


def are_same(found: list[list[torch.Tensor]], expected: list[list[torch.Tensor]]) -> bool:
    """Tell whether batches are equal bit for bit."""
    return len(found) == len(expected) and all(
        len(one) == len(other) and all(map(torch.equal, one, other)) for one, other in zip(found, expected, strict=True)
    )
