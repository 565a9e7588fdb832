"""TrainingData: the samples of a run on one rank, those to train on and those to judge by, and their loaders."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from voxload.augment import ClassCentres
from voxload.catalog.generations import at_generation, generation_of
from voxload.catalog.query.conditions import OtherThan
from voxload.catalog.table import Catalog
from voxload.data.dataset import VolumeDataset
from voxload.data.lists.patches import Patches
from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid
from voxload.launch.collectives import all_gathered
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


@dataclass(frozen=True, slots=True)
class Part:
    """What one of several trainers has of the samples to train on; sorted."""

    training: tuple[str, ...]
    """That it learns from, as many for each trainer."""
    contest: tuple[str, ...]
    """That it judges models by in a tournament, and does not learn from."""


def part_samples(ids: Sequence[str], *, trainers: int, trainer: int, held_out: float, seed: int) -> Part:
    """Deal samples out to trainers, by `seed`, and hold out a share of each one's part.

    Raises UsageError when there are too few for each to learn from one and judge by another.
    """
    drawn = sorted(ids)
    random.Random(f"parts {seed}").shuffle(drawn)  # noqa: S311 - a split needs no secrecy
    least = len(drawn) // trainers
    learns = least - max(round(least * held_out), 1)
    if learns < 1:
        raise UsageError(
            f"{trainers} trainers",
            found=f"{len(drawn)} samples to train on",
            expected=f"{2 * trainers} or more",
            remedy="choose fewer trainers, or more samples",
        )
    own = drawn[trainer::trainers]
    return Part(tuple(sorted(own[:learns])), tuple(sorted(own[learns:])))


def patches_of(plan: TrainingPlan) -> tuple[Patches | None, Patches | None]:
    """Return the patches that are trained on, at random places, and those held out, which cover their samples."""
    if not plan.patch:
        return None, None
    centres = ClassCentres(LABELS, classes=range(plan.classes)) if plan.around_classes else None
    seed = plan.optimisation.seed
    training = Patches(plan.patch, per_sample=plan.patches, centres=centres, seed=seed)
    return training, Patches(plan.patch, stride=plan.patch)


TRAINING, VALIDATION, CONTEST = "training", "validation", "contest"
"""Names of the loaders, and of their folders on disk: a disk tier's capacity is one of its folder."""


def split_cache(cache: Cache, samples: Mapping[str, int], *, epochs: Mapping[str, int]) -> dict[str, Cache]:
    """Divide `cache` by numbers of samples: all are read again and again, so a byte is worth the same to each.

    Parameters
    ----------
    cache
        The room of a node.
    samples
        Those of each loader, by its name.
    epochs
        Passes over them, by the same names.

    Returns
    -------
    The loaders' caches by name, in sum no larger than `cache`.
    """
    whole = sum(samples.values())
    return {name: cache_part(cache, name, (count, whole), epochs=epochs[name]) for name, count in samples.items()}


def cache_part(cache: Cache, name: str, share: tuple[int, int], *, epochs: int | None = None) -> Cache:
    """Return so many parts of so many of a node's room, rounded down, with a folder of that name on disk."""
    parts, whole = share
    return replace(
        cache,
        memory=cache.memory_bytes * parts // whole,
        disk=None if cache.disk is None else os.path.join(cache.disk, name),  # noqa: PTH118 - travels as text
        disk_size=cache.disk_bytes * parts // whole,
        epochs=cache.epochs if epochs is None else epochs,
    )


_DECISIVE = ("sample", "dataset", "shape", "axes")
"""Columns of a catalogue that, with the targets, say what there is to learn from; not where it lies."""


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Samples that models are judged by, in a loader that does not shuffle."""

    loader: DataLoader
    data: VolumeDataset
    order: tuple[int, ...]
    """Their numbers, as this rank's loader gives them."""

    @classmethod
    def of(cls, loader: DataLoader) -> Judged:
        """Return a loader's samples."""
        # Asked once: to iterate a sampler beside its loader would tell it of epochs there are not.
        return cls(loader, cast("VolumeDataset", loader.dataset), tuple(loader.sampler))


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
    trainer
        Whose part of the samples this is, where there are several.
    generation
        Of a catalogue that is followed, that which the run began with; None for one that begins now.

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
        trainer: int = 0,
        generation: int | None = None,
    ) -> None:
        catalog = Catalog.read(plan.catalog, allow_outside=plan.allow_outside)
        self.generation: int | None = None
        """Of a catalogue that is followed, that which the run began with."""
        if plan.follow:
            seen = min(all_gathered(generation_of(catalog), int))  # ranks may see it at different times
            self.generation = seen if generation is None else generation
            catalog = at_generation(catalog, self.generation)
        self.fields = Fields.of(plan, catalog)
        self.digest = _digest(catalog)
        recipe = plan.optimisation
        split = split_samples(catalog.samples, fraction=plan.validation, seed=recipe.seed)
        drawn, whole = patches_of(plan)
        words: dict[str, Any] = {"fields": self.fields.volumes, "targets": self.fields.targets or None, "grid": grid}
        self.everyones = VolumeDataset(catalog.select(split.training), patches=drawn, **words)
        """What all trainers learn from, and judge models by: inputs and targets are scaled by it."""
        self.validation = VolumeDataset(catalog.select(split.validation), patches=whole, **words)
        self.training, contest = self.everyones, None
        if plan.trainers > 1:
            part = part_samples(
                split.training,
                trainers=plan.trainers,
                trainer=trainer,
                held_out=plan.tournament.held_out,
                seed=recipe.seed,
            )
            self.training = VolumeDataset(catalog.select(part.training), patches=drawn, **words)
            contest = VolumeDataset(catalog.select(part.contest), patches=whole, **words)
        if plan.follow:
            self.training = self._growing(plan, split, patches=drawn, **words)
        size = recipe.batch_size
        self.moments = moments or Moments.of(self.everyones, batch_size=size, log1p=plan.log1p)
        # Over groups also where there is one process: the same plan then sees the same order on every grid.
        order = GroupSampler(self.training, grid, shuffle=True, seed=recipe.seed)
        caches = self._caches(plan, contest)
        more: dict[str, Any] = {"transform": self.moments.transform, "device": loader_device(device)}
        more["clairvoyant"] = plan.clairvoyant
        self.loader = DataLoader(self.training, size, sampler=order, cache=caches.get(TRAINING), **more)
        self.judge = Judged.of(DataLoader(self.validation, size, cache=caches.get(VALIDATION), **more))
        self.contest = None
        """What models of a tournament are judged by."""
        if contest is not None:
            self.contest = Judged.of(DataLoader(contest, size, cache=caches.get(CONTEST), **more))

    def _growing(self, plan: TrainingPlan, split: Split, **words: Any) -> VolumeDataset:
        """Return the samples to train on, and all that come: those held out stay what they are."""
        whole = VolumeDataset(plan.catalog, follow=True, allow_outside=plan.allow_outside, **words)
        if whole.following is None or self.generation is None:
            raise InternalError("training data", found="a fixed data set", expected="one that follows its catalogue")
        others = whole.following.narrowed(OtherThan(frozenset(split.validation)))
        return whole.with_following(others.at(self.generation))

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
        judges = [each for each in (self.judge, self.contest) if each is not None]
        for loader in (self.loader, *(each.loader for each in judges)):
            loader.close()
        for data in {
            id(each): each for each in (self.training, self.everyones, *(one.data for one in judges))
        }.values():
            data.close()

    def _caches(self, plan: TrainingPlan, contest: VolumeDataset | None) -> dict[str, Cache]:
        """Return the caches of the loaders by name; none where the plan has no room for any."""
        if plan.cache is None:
            return {}
        cache, epochs = plan.cache, plan.optimisation.epochs
        samples = {TRAINING: len(self.training), VALIDATION: len(self.validation)}
        passes = dict.fromkeys(samples, epochs)
        if contest is not None:
            samples[CONTEST] = len(contest)
            steps = epochs * -(-len(self.training) // plan.optimisation.batch_size)
            passes[CONTEST] = 2 * max(steps // plan.tournament.every, 1)
        return split_cache(cache, samples, epochs=passes)


def _digest(catalog: Catalog) -> str:
    """Return a digest of the samples and their targets, the same wherever they are stored."""
    rows = catalog.table.select([*_DECISIVE, *catalog.target_names]).to_pylist()
    return hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()
