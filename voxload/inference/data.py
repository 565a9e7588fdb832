"""InferenceData: the samples of a run of predictions, dealt out to the sample groups, and their loaders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from voxload.catalog.table import Catalog, Entry
from voxload.data.dataset import VolumeDataset
from voxload.errors import NotFoundError, UsageError
from voxload.grid import ProcessGrid
from voxload.inference.model import Extents, Trained
from voxload.inference.patches import PatchBatch, Tile, at_least_patch, check_tiles, cut, padded, patch_batches, tiles
from voxload.inference.plan import InferencePlan
from voxload.launch.devices import ON_HOST, loader_device
from voxload.loader.dataloader import DataLoader
from voxload.training.data import LABELS, VOLUME, Fields
from voxload.training.plan import UNET3D


@dataclass(frozen=True, slots=True)
class Part:
    """Samples that are read alike: those with labels, or those without."""

    data: VolumeDataset
    """This rank's blocks."""
    batches: tuple[tuple[int, ...], ...]
    """Indices of this group's samples, or patches; those of a batch have the same extents."""
    loader: DataLoader[Any]
    """Gives those batches."""
    samples: tuple[str, ...]
    """Ids of the samples, as they are dealt."""
    tiles: tuple[Tile, ...] = ()
    """What each batch is of, where it is of patches; of samples smaller than a patch, what is cut out of each batch."""
    is_small: bool = False
    """Whether the samples are smaller than a patch, and read whole."""


@dataclass(frozen=True, slots=True)
class Batch:
    """This rank's blocks of some samples."""

    samples: tuple[str, ...]
    """Their ids."""
    volumes: Tensor
    """Standardised, ``(B, C, d, h, w)``."""
    labels: Tensor | None
    """As stored, ``(B, 1, d, h, w)``; None where there are none."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """What the network gives for this rank's blocks of some samples."""

    samples: tuple[str, ...]
    """Their ids."""
    outputs: Tensor
    """One row a sample."""
    labels: Tensor | None
    """As stored, ``(B, 1, d, h, w)``; None where there are none."""


class InferenceData:
    """What a run of predictions reads; every rank makes one at the same point.

    Parameters
    ----------
    plan
        What to predict from.
    trained
        The network's inputs.
    grid
        The ranks; torch.distributed is initialised when there are several.
    device
        Where batches go; on the host they are tensors of the loaders' own memory.

    Raises
    ------
    UsageError
        When catalogue, network and grid do not fit each other.
    """

    def __init__(
        self, plan: InferencePlan, trained: Trained, grid: ProcessGrid, *, device: torch.device = ON_HOST
    ) -> None:
        self.catalog = Catalog.read(plan.catalog, allow_outside=plan.allow_outside)
        self.catalog.check_not_empty()
        self.dataset, labels = _datasets(plan, trained, self.catalog)
        self.samples = self.catalog.samples
        self.tiling = plan.tiling(trained.plan.patch)
        self.extents = {
            sample: _extents(self.catalog, sample, self.dataset, trained.channels) for sample in self.samples
        }
        for extents in set(self.extents.values()):
            grid.bounds(extents)
        if self.tiling is not None:
            if trained.plan.model != UNET3D:
                raise UsageError(
                    "--patch",
                    found=f"patches for {trained.plan.model}",
                    expected="none: its targets are of whole samples",
                    remedy="leave out --patch",
                )
            check_tiles(grid.spatial)
        there = {sample for sample, dataset in self.catalog.keys if labels and dataset == labels}
        self.labelled = tuple(sample for sample in self.samples if sample in there)
        others = tuple(sample for sample in self.samples if sample not in there)
        volumes = {VOLUME: self.dataset}
        place = loader_device(device)
        self._parts: list[Part] = []
        for samples, fields in ((self.labelled, volumes | {LABELS: labels}), (others, volumes)):
            small = tuple(sample for sample in samples if self._is_small(sample))
            for some, is_small in ((tuple(one for one in samples if one not in set(small)), False), (small, True)):
                if some:
                    self._parts.append(
                        self._part(plan, trained, some, fields, grid=grid, place=place, is_small=is_small)
                    )

    def _is_small(self, sample: str) -> bool:
        """Tell whether a sample is smaller than a patch, where there are patches."""
        whole = self.extents[sample]
        return self.tiling is not None and at_least_patch(whole, self.tiling.patch) != whole

    def _part(
        self,
        plan: InferencePlan,
        trained: Trained,
        samples: tuple[str, ...],
        fields: dict[str, str],
        *,
        grid: ProcessGrid,
        place: torch.device | None,
        is_small: bool,
    ) -> Part:
        """Return what reads some samples, whole or by patches, and in which batches."""
        patches = None if self.tiling is None else tiles(self.tiling)
        data = VolumeDataset(
            self.catalog.select(samples), fields=fields, grid=grid, patches=None if is_small else patches
        )
        shapes = [self.extents[one] for one in samples]
        batches = deal(shapes, grid, batch_size=plan.batch_size if patches is None else 1)
        tiled: tuple[Tile, ...] = ()
        if patches is not None:
            mine = [index for batch in batches for index in batch]
            shapes = [at_least_patch(shape, patches.shape) for shape in shapes]
            tiled = tuple(patch_batches(patches, shapes, mine, batch_size=plan.batch_size))
            batches = batches if is_small else tuple(tile.indices for tile in tiled)
        loader = DataLoader(data, batch_sampler=batches, transform=trained.moments.transform, device=place)
        return Part(data, batches, loader, samples, tiled, is_small)

    def patches(self) -> Iterator[PatchBatch]:
        """Return this group's batches of patches: every patch is in one, those of a sample one behind the other."""
        for part in self._parts:
            if part.is_small:
                yield from self._padded_patches(part)
                continue
            for tile, (volumes, *rest) in zip(part.tiles, part.loader, strict=True):
                yield PatchBatch(part.samples[tile.sample], tile, volumes, rest[0] if rest else None)

    def _padded_patches(self, part: Part) -> Iterator[PatchBatch]:
        """Return the batches of patches of samples that are read whole and are smaller than one."""
        patch = at_least_patch((0, 0, 0), self.tiling.patch) if self.tiling is not None else (0, 0, 0)
        for (index,), batch in zip(part.batches, part.loader, strict=True):
            wholes = [padded(one[0], patch) for one in batch]
            for tile in part.tiles:
                if tile.sample == index:
                    volumes, *rest = (cut(tile, whole, patch) for whole in wholes)
                    yield PatchBatch(part.samples[index], tile, volumes, rest[0] if rest else None)

    def __iter__(self) -> Iterator[Batch]:
        """Return this group's batches of whole samples: every sample is in one batch of one group."""
        for part in self._parts:
            for indices, (volumes, *rest) in zip(part.batches, part.loader, strict=True):
                ids = tuple(part.data.sample_ids[index] for index in indices)
                yield Batch(ids, volumes, rest[0] if rest else None)

    @property
    def sources(self) -> dict[str, Entry]:
        """What the catalogue says of the volume that each sample is predicted from."""
        return {sample: self.catalog.entry(sample, self.dataset) for sample in self.samples}

    def truth(self, sample: str, target: str) -> float:
        """Return a target that the catalogue has for a sample; NaN where it has none."""
        return self.catalog.entry(sample, self.dataset).targets.get(target, math.nan)

    def close(self) -> None:
        """Close loaders and data: no thread, shared memory or connection is left."""
        for part in self._parts:
            part.loader.close()
            part.data.close()


def deal(extents: Sequence[Extents], grid: ProcessGrid, *, batch_size: int) -> tuple[tuple[int, ...], ...]:
    """Return the batches of one sample group: no sample is left out or repeated, so shares may differ by one.

    Parameters
    ----------
    extents
        Those of each sample; a batch has samples of the same.
    grid
        The ranks.
    batch_size
        Samples of a batch at most.
    """
    order = sorted(range(len(extents)), key=lambda index: (extents[index], index))
    batches: list[tuple[int, ...]] = []
    for _, same in groupby(order[grid.group :: grid.groups], key=lambda index: extents[index]):
        share = tuple(same)
        batches += [share[first : first + batch_size] for first in range(0, len(share), batch_size)]
    return tuple(batches)


def _datasets(plan: InferencePlan, trained: Trained, catalog: Catalog) -> tuple[str, str]:
    """Return the names of the volumes and of the labels; the latter is empty for a regression."""
    dataset = plan.dataset or trained.plan.dataset
    if trained.plan.model == UNET3D:
        labels = plan.labels or trained.plan.labels
        if plan.labels and plan.labels not in catalog.datasets:
            found, expected = f"no dataset {plan.labels!r} in the catalogue", f"one of {list(catalog.datasets)}"
            raise NotFoundError("--labels", found=found, expected=expected)
        wanted = replace(trained.plan, dataset=dataset, labels=labels)
        return (Fields.of(wanted, catalog).volumes or {})[VOLUME], labels
    if plan.labels:
        raise UsageError("--labels", found=f"{plan.labels!r} for {trained.plan.model}", expected="none")
    if not dataset and len(catalog.datasets) > 1:
        found = f"{len(catalog.datasets)} datasets, {list(catalog.datasets)}"
        raise UsageError(f"catalogue {plan.catalog}", found=found, remedy="name one with --dataset")
    return dataset or catalog.datasets[0], ""


def _extents(catalog: Catalog, sample: str, dataset: str, channels: int) -> Extents:
    """Return a sample's extents (D, H, W), as the catalogue has them, and refuse other channels than the network's."""
    entry = catalog.entry(sample, dataset)
    stored = dict(zip(entry.axes, entry.shape, strict=True))
    if stored.get("C", 1) != channels:
        raise UsageError(
            f"dataset {dataset!r} of sample {sample!r}",
            found=f"{stored.get('C', 1)} channels",
            expected=f"{channels}, as the network was trained on",
            remedy="name another dataset with --dataset",
        )
    return stored["D"], stored["H"], stored["W"]
