"""Batch: one batch's blocks, whoever brought them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from voxload.readers.protocol import ReadCost


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch, read."""

    indices: tuple[int, ...]
    """Samples, in order."""
    volumes: tuple[torch.Tensor, ...]
    """One ``(B, C, d, h, w)`` tensor per field, looking into a slot."""
    targets: torch.Tensor | None
    """``(B, T)`` float32, or None when none were asked for."""
    cost: ReadCost
    """What it took of the storage."""


class Batches(Protocol):
    """The batches of one epoch, in order; used by one thread."""

    @property
    def taken(self) -> int:
        """Batches that `next` returned, or raised in place of: those that come again after a time-out do not count."""
        ...

    def next(self) -> Batch | None:
        """Return the next batch, waiting for it; None when there is none left.

        Raises
        ------
        RuntimeError
            When the batch takes longer than the loader's time-out.
        VoxloadError
            Whatever reading one of its samples raised; the next batch is unharmed.
        """
        ...

    def ready(self) -> bool:
        """Tell whether `next` would not wait; what it raises, it raises in place of the next batch."""
        ...
