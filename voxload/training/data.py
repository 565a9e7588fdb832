"""TrainingData: the samples of a run on one rank, those to train on and those to judge by, and their loaders."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from voxload.augment import ClassCentres
from voxload.catalog.table import Catalog
from voxload.data.dataset import VolumeDataset
from voxload.data.lists.patches import Patches
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.launch.devices import ON_HOST, loader_device
from voxload.loader.cache import Cache
from voxload.loader.dataloader import DataLoader
from voxload.loader.sampler import GroupSampler
from voxload.training.normalisation import Moments
from voxload.training.plan import UNET3D, TrainingPlan

VOLUME, LABELS = "x", "labels"
"""Names of the fields."""


@dataclass(frozen=True, slots=True)
class Fields:
    """What the loaders of a run give with each batch: the volumes, then either labels or targets."""

    volumes: Mapping[str, str] | None
    """Field name to dataset, as VolumeDataset takes them; None for the only dataset there is."""
    targets: tuple[str, ...] = ()
    """Columns of the catalogue."""

    @classmethod
    def of(cls, plan: TrainingPlan, catalog: Catalog) -> Fields:
        """Return what `plan` needs of a catalogue.

        Raises UsageError when it has no target, or when it is open which dataset is the volume.
        """
        if plan.model == UNET3D:
            return cls({VOLUME: plan.dataset or _other(catalog, plan.labels), LABELS: plan.labels})
        targets = plan.targets or catalog.target_names
        if not targets:
            raise UsageError(f"catalogue {plan.catalog}", found="no target column", expected="something to predict")
        return cls({VOLUME: plan.dataset} if plan.dataset else None, targets)


def _other(catalog: Catalog, labels: str) -> str:
    """Return the one dataset that is not the labels."""
    others = [name for name in catalog.datasets if name != labels]
    if len(others) != 1:
        raise UsageError(
            "dataset",
            found=f"{others} besides the labels {labels!r}",
            expected="one, or to know which",
            remedy="say --dataset NAME",
        )
    return others[0]


@dataclass(frozen=True, slots=True)
class Split:
    """Sample ids to train on and ids to judge by."""

    training: tuple[str, ...]
    """Sorted."""
    validation: tuple[str, ...]
    """Sorted; shares no id with `training`."""


def split_samples(ids: Sequence[str], *, fraction: float, seed: int) -> Split:
    """Hold out `fraction` of the samples, chosen by `seed`; the same on every rank.

    Raises UsageError when either part would be empty.
    """
    count = round(len(ids) * fraction)
    if not 0 < count < len(ids):
        raise UsageError(
            "validation split",
            found=f"{count} of {len(ids)} samples",
            expected="at least one sample to train on and one to hold out",
            remedy="use more samples or another fraction",
        )
    drawn = sorted(ids)
    random.Random(seed).shuffle(drawn)  # noqa: S311 - a split needs no secrecy
    return Split(tuple(sorted(drawn[count:])), tuple(sorted(drawn[:count])))


def patches_of(plan: TrainingPlan) -> tuple[Patches | None, Patches | None]:
    """Return the patches that are trained on, at random places, and those held out, which cover their samples."""
    if not plan.patch:
        return None, None
    centres = ClassCentres(LABELS, classes=range(plan.classes)) if plan.around_classes else None
    seed = plan.optimisation.seed
    training = Patches(plan.patch, per_sample=plan.patches, centres=centres, seed=seed)
    return training, Patches(plan.patch, stride=plan.patch)


TRAINING, VALIDATION = "training", "validation"
"""Names of the two loaders, and of their folders on disk: a disk tier's capacity is one of its folder."""


def split_cache(cache: Cache, *, training: int, validation: int, epochs: int) -> tuple[Cache, Cache]:
    """Divide `cache` by numbers of samples: all are read once an epoch, so a byte is worth the same to each.

    Parameters
    ----------
    cache
        The room of a node.
    training, validation
        Samples that are trained on, and that are held out.
    epochs
        Passes over both.

    Returns
    -------
    The caches of the training and of the validation loader, in sum no larger than `cache`.
    """
    whole = training + validation
    held_out = _part(cache, VALIDATION, (validation, whole), epochs)
    return _part(cache, TRAINING, (training, whole), epochs), held_out


def _part(cache: Cache, name: str, share: tuple[int, int], epochs: int) -> Cache:
    """Return so many parts of so many, rounded down."""
    parts, whole = share
    return replace(
        cache,
        memory=cache.memory_bytes * parts // whole,
        disk=None if cache.disk is None else os.path.join(cache.disk, name),  # noqa: PTH118 - travels as text
        disk_size=cache.disk_bytes * parts // whole,
        epochs=epochs,
    )


_DECISIVE = ("sample", "dataset", "shape", "axes")
"""Columns of a catalogue that, with the targets, say what there is to learn from; not where it lies."""


class TrainingData:
    """What a run reads; every rank makes one at the same point.

    Parameters
    ----------
    plan
        What to train on.
    grid
        The ranks; torch.distributed is initialised when there are several.
    device
        Where the loaders' batches go; on the host they are tensors of the loaders' own memory.
    moments
        Those of the inputs, where they are known; None measures them.

    Raises
    ------
    UsageError
        When plan and catalogue do not fit each other, or the inputs cannot be standardised.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        grid: ProcessGrid,
        *,
        device: torch.device = ON_HOST,
        moments: Moments | None = None,
    ) -> None:
        catalog = Catalog.read(plan.catalog, allow_outside=plan.allow_outside)
        self.fields = Fields.of(plan, catalog)
        self.digest = _digest(catalog)
        recipe = plan.optimisation
        split = split_samples(catalog.samples, fraction=plan.validation, seed=recipe.seed)
        self.training, self.validation = (
            VolumeDataset(
                catalog.select(samples),
                fields=self.fields.volumes,
                targets=self.fields.targets or None,
                grid=grid,
                patches=patches,
            )
            for samples, patches in zip((split.training, split.validation), patches_of(plan), strict=True)
        )
        size = recipe.batch_size
        self.moments = moments or Moments.of(self.training, batch_size=size, log1p=plan.log1p)
        # Over groups also where there is one process: the same plan then sees the same order on every grid.
        order = GroupSampler(self.training, grid, shuffle=True, seed=recipe.seed)
        caches, transform = self._caches(plan), self.moments.transform
        place = loader_device(device)
        self.loader = DataLoader(self.training, size, sampler=order, transform=transform, cache=caches[0], device=place)
        self.judge = DataLoader(self.validation, size, transform=transform, cache=caches[1], device=place)
        # Not shuffled, and asked once: to iterate a sampler beside its loader would tell it of epochs there are not.
        self.judged = tuple(self.judge.sampler)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Extents (D, H, W) of a sample."""
        return self.training.volume_shape(0)

    @property
    def channels(self) -> int:
        """Channels of a sample's volume."""
        return self.training.layout(0)[0].shape[0]

    def close(self) -> None:
        """Close loaders and data: no thread, shared memory or connection is left, and what lies on disk stays."""
        for part in (self.loader, self.judge, self.training, self.validation):
            part.close()

    def _caches(self, plan: TrainingPlan) -> tuple[Cache | None, Cache | None]:
        """Return the caches of the training and of the validation loader."""
        if plan.cache is None:
            return None, None
        return split_cache(
            plan.cache,
            training=len(self.training),
            validation=len(self.validation),
            epochs=plan.optimisation.epochs,
        )


def _digest(catalog: Catalog) -> str:
    """Return a digest of the samples and their targets, the same wherever they are stored."""
    rows = catalog.table.select([*_DECISIVE, *catalog.target_names]).to_pylist()
    return hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()
