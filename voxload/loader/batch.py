"""Batch: one batch's blocks, whoever brought them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from voxload.data.layout import FieldLayout
from voxload.errors import DataError
from voxload.readers.protocol import ReadCost


@dataclass(frozen=True, slots=True)
class Ragged:
    """One field's blocks that are not all of one shape and type: for those who take samples one by one."""

    blocks: tuple[torch.Tensor, ...]
    """A ``(C, d, h, w)`` tensor per sample."""
    refusal: Callable[[], DataError]
    """Makes the error that names the sample that differs: one that was kept here would keep the blocks once raised."""

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(block.nbytes for block in self.blocks)

    def __getitem__(self, place: int) -> torch.Tensor:
        return self.blocks[place]


Column = torch.Tensor | Ragged
"""One field's blocks of a batch: a ``(B, C, d, h, w)`` tensor wherever they can be one."""


def stacked(column: Column) -> torch.Tensor:
    """Return one field's blocks as one tensor; raises DataError where they are not of one shape and type."""
    if isinstance(column, Ragged):
        raise column.refusal()
    return column


def unequal_blocks(sample: str, found: Sequence[FieldLayout], expected: Sequence[FieldLayout]) -> DataError:
    """Return the error of a sample whose blocks are not like the first one's."""
    return DataError(
        f"sample {sample!r}",
        found=", ".join(f"{field.dtype} {field.shape}" for field in found),
        expected=", ".join(f"{field.dtype} {field.shape}" for field in expected) + " as the first sample",
        remedy="batches need blocks of one shape and type: convert the samples to one, or take patches of one",
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch, read."""

    indices: tuple[int, ...]
    """Samples, in order."""
    volumes: tuple[Column, ...]
    """One for each field, looking into a slot."""
    targets: torch.Tensor | None
    """``(B, T)`` float32, or None when none were asked for."""
    cost: ReadCost
    """What it took of the storage."""
    nbytes: int = field(init=False)
    """Bytes of its blocks."""
    is_even: bool = field(init=False)
    """Whether each field's blocks are one tensor."""

    def __post_init__(self) -> None:
        # By whoever makes it, so that the loop need not.
        object.__setattr__(self, "nbytes", sum(volume.nbytes for volume in self.volumes))
        object.__setattr__(self, "is_even", not any(isinstance(volume, Ragged) for volume in self.volumes))


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the next batch will be, unless the sampler draws otherwise."""

    indices: tuple[int, ...] | None
    """Samples, in order; None at the end of the epoch."""


class Batches(Protocol):
    """The batches of one epoch, in order; used by one thread."""

    @property
    def taken(self) -> int:
        """Batches that `next` returned, or raised in place of: those that come again after a time-out do not count."""
        ...

    @property
    def seconds_on_device(self) -> float:
        """Seconds that `next` has waited for what the consumer asked of its device, and not for storage."""
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

    def foreseen(self) -> Foreseen | None:
        """Return what `next` will return, as far as that is known without drawing from the sampler; never waits."""
        ...
