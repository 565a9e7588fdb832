"""Warming: the blocks that ranks will use, in the order of their first use, for a service to have before they begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from voxload.data.dataset import VolumeDataset
from voxload.loader.caching.kept import kept_of
from voxload.loader.caching.served import FieldUnits
from voxload.prefetch.line import Ints
from voxload.serve.protocol.blocktable import ServedBlock


@dataclass(frozen=True, slots=True)
class WarmSet:
    """What is to be near before it is used."""

    blocks: list[ServedBlock]
    """Each once."""
    uses: Ints
    """Places in `blocks`, in the order of their first use."""

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(block.layout.nbytes for block in self.blocks)


def warm_set(ranks: Sequence[VolumeDataset], order: Sequence[int]) -> WarmSet:
    """Return the blocks of some ranks of a sample group, whose samples are used in an order.

    Opens a few files, and raises what that raises; UsageError for samples whose blocks are pieces: unequal, augmented
    or overlapping ones, of which a loader itself says in its first epoch what it needs.

    Parameters
    ----------
    ranks
        The same samples, as the blocks of each rank.
    order
        Their numbers.
    """
    fields = [FieldUnits(kept_of(data, 1).units) for data in ranks]
    blocks = [
        one.block(sample * one.fields + place) for sample in order for one in fields for place in range(one.fields)
    ]
    return WarmSet(blocks, np.arange(len(blocks), dtype=np.int64))


def first_order(samples: int, seed: int | None) -> list[int]:
    """Return the order of the first epoch of torch's loader with ``shuffle=True`` and a generator of a seed.

    None stands for no shuffling.
    """
    if seed is None:
        return list(range(samples))
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.utils.data.TensorDataset(torch.arange(samples))
    loader = torch.utils.data.DataLoader(numbers, batch_size=None, shuffle=True, generator=generator)
    return [int(number) for (number,) in loader]
