"""TrainingData: the samples of a run on one rank, those to train on and those to judge by, and their loaders."""

from __future__ import annotations

import hashlib

import torch

from voxload.catalog import Catalog
from voxload.dataset import VolumeDataset
from voxload.devices import ON_HOST, loader_device
from voxload.grid import ProcessGrid
from voxload.loader.cache import Cache
from voxload.loader.dataloader import DataLoader
from voxload.loader.sampler import GroupSampler
from voxload.training.fields import Fields
from voxload.training.plan import TrainingPlan
from voxload.training.shares import shared_out
from voxload.training.split import split_samples
from voxload.training.statistics import Moments

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
                catalog.select(samples), fields=self.fields.volumes, targets=self.fields.targets or None, grid=grid
            )
            for samples in (split.training, split.validation)
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
        return shared_out(
            plan.cache,
            training=len(self.training),
            validation=len(self.validation),
            epochs=plan.optimisation.epochs,
        )


def _digest(catalog: Catalog) -> str:
    """Return a digest of the samples and their targets, the same wherever they are stored."""
    rows = catalog.table.select([*_DECISIVE, *catalog.target_names]).to_pylist()
    return hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()
