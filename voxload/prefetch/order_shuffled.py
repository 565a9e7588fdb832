"""Shuffled orders without a loader, for simulations."""

from __future__ import annotations

from typing import Any, cast

from torch.utils.data import Dataset, DistributedSampler

from voxload.prefetch.line import EpochOrder
from voxload.prefetch.order_batches import Cut
from voxload.prefetch.order_replays import DistributedReplay, Numbered


def shuffled_orders(
    samples: int, groups: int, *, batch: int, seed: int, epochs: int, drop_last: bool = False
) -> tuple[EpochOrder, ...]:
    """Return the orders that voxload.DataLoader draws for sample groups with ``shuffle=True``.

    Parameters
    ----------
    samples, groups, epochs
        How many of each; the epochs are 0 to ``epochs - 1``.
    batch
        Samples in a group's batch.
    seed
        Of the shuffling: the loader takes its generator's, 0 without one.
    drop_last
        Whether samples that do not fill a round of groups or a batch are left out.
    """
    data = cast("Dataset[Any]", range(samples))
    sampler: DistributedSampler[Any] = DistributedSampler(data, groups, 0, seed=seed, drop_last=drop_last)
    replay = DistributedReplay(sampler, samples, cut=Cut(batch, drop_last), part=(0, groups))
    return tuple(EpochOrder(epoch, replay.draw(Numbered(epoch, 1))[0]) for epoch in range(epochs))
