"""Collation: what the training loop sees of a batch that was read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils.data import default_collate, default_convert
from torch.utils.data._utils.pin_memory import pin_memory

from voxload.data.dataset import VolumeDataset
from voxload.data.decoding import decoded, decoded_batch
from voxload.data.item_transforms import ItemTransform
from voxload.data.parting import Parting
from voxload.loader.batch import Batch, Column, Ragged, stacked
from voxload.transforms import Transform


@dataclass(frozen=True, slots=True)
class Collation:
    """Turns batches into what torch's loader would give; used by the consumer's thread.

    Samples that torch's own functions would collate are in one tensor already and are handed on as they are.
    """

    collate: Callable[[Any], Any]
    """The loader's ``collate_fn``."""
    is_batched: bool
    """Whether samples are collated, or single ones converted."""
    transforms: tuple[Transform | None, ...]
    """What is done to each field's volumes."""
    pin_memory: bool
    """Whether CPU tensors are copied to pinned memory, as torch does."""
    pin_memory_device: str | None = None
    """The device that they are pinned for."""
    item: ItemTransform | None = None
    """What the data set does to each item, one by one and in order, before they are collated."""
    data: VolumeDataset | None = None
    """What is read, which knows what stored numbers stand for."""
    parting: Parting | None = None
    """What parts volumes of several time steps; None where there are none."""
    is_plain: bool = field(init=False)
    """Whether the loop gets a batch's tensors as they are."""

    def __post_init__(self) -> None:
        is_changed = any(change is not None for change in self.transforms) or self.item is not None
        is_changed = is_changed or self.parting is not None or self._has_columns
        is_plain = self.is_batched and not is_changed and not self.pin_memory and is_torchs(self.collate)
        object.__setattr__(self, "is_plain", is_plain)

    @property
    def _has_columns(self) -> bool:
        return self.data is not None and bool(self.data.columns.names)

    def __call__(self, batch: Batch) -> Any:
        """Return what the loop sees.

        Raises what a collate_fn or a transform raises, and DataError where blocks of unequal shape must be one tensor.
        """
        if self.data is not None and self.data.volumes.are_packed:
            batch = self._decoded(batch, self.data)
        is_made = self.item is None and is_torchs(self.collate)
        data = self._collated(batch) if is_made else self.collate(self._samples(batch))
        first = batch.volumes[0]
        if not self.pin_memory or not (isinstance(first, Ragged) or first.device.type == "cpu"):
            return data  # what is on a device was pinned on its way
        return pin_memory(data, self.pin_memory_device)  # type: ignore[no-untyped-call] # torch's

    def _collated(self, batch: Batch) -> Any:
        volumes = [
            volume if change is None else self._changed(number, volume, change)  # None alone is asked for: see PerField
            for number, (volume, change) in enumerate(zip(map(stacked, batch.volumes), self.transforms, strict=True))
        ]
        parts = volumes if self.parting is None else list(self.parting.item(volumes))
        parts += [] if batch.targets is None else [batch.targets]
        parts = parts if self.is_batched else [part[0] for part in parts]
        return parts + self._columns(batch)

    def _columns(self, batch: Batch) -> list[Any]:
        """Return what the catalogue says of a batch's samples, as torch collates or converts it."""
        rows = self._row_values(batch)
        if not self.is_batched:
            return [default_convert(value) for value in rows[0]]  # type: ignore[no-untyped-call] # torch's
        return [default_collate(list(values)) for values in zip(*rows, strict=True)]

    def _row_values(self, batch: Batch) -> list[tuple[Any, ...]]:
        """Return what the catalogue says of each sample; nothing where no column was asked for."""
        if self.data is None or not self.data.columns.names:
            return [()] * len(batch.indices)
        return [self.data.row_values(index) for index in batch.indices]

    def _decoded(self, batch: Batch, data: VolumeDataset) -> Batch:
        """Return a batch of what its stored numbers stand for."""
        packings = list(zip(*map(data.packing, batch.indices), strict=True))
        volumes: list[Column] = []
        for column, own in zip(batch.volumes, packings, strict=True):
            if isinstance(column, Ragged):
                volumes.append(replace(column, blocks=tuple(map(decoded, column.blocks, own))))
            else:
                volumes.append(decoded_batch(column, own))
        return replace(batch, volumes=tuple(volumes))

    def _changed(self, number: int, volume: torch.Tensor, change: Transform) -> Any:
        """Return a field's batch as its transform makes it, which sees a volume a time step."""
        return change(volume) if self.parting is None else self.parting.changed(number, volume, change)

    def _samples(self, batch: Batch) -> Any:
        columns = (*batch.volumes, *(() if batch.targets is None else (batch.targets,)))
        samples: list[Any] = [tuple(column[place] for column in columns) for place in range(len(batch.indices))]
        if self.parting is not None:
            count = len(batch.volumes)
            samples = [(*self.parting.item(sample[:count]), *sample[count:]) for sample in samples]
        samples = [(*sample, *values) for sample, values in zip(samples, self._row_values(batch), strict=True)]
        items = samples if self.item is None else list(map(self.item, samples))
        return items if self.is_batched else items[0]


def is_torchs(collate: Callable[[Any], Any]) -> bool:
    """Tell whether a collate_fn is torch's own, which only stacks samples or takes a single one as it is."""
    return collate in (default_collate, default_convert)
