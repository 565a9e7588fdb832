"""Reordering: which shuffle each epoch takes, chosen once by all ranks together, before the first of them begins.

What is chosen lies in the sampler, where orders are drawn and replayed from, and in the loader's states: who goes on
from one has the same order. Epochs that are over, or under way in a state, keep theirs.
"""

from __future__ import annotations

from typing import Any

from voxload.errors import UsageError
from voxload.loader.cache import Cache
from voxload.loader.caching.dealing import agreed
from voxload.loader.caching.kept import Kept
from voxload.loader.caching.tiers import SharedTiers
from voxload.loader.collectives import Rendezvous
from voxload.loader.sampler import GroupSampler
from voxload.prefetch import policies
from voxload.prefetch.order.reordering import reorder
from voxload.prefetch.order.source import OrderSource


def check_reordering(cache: Cache, sampler: Any) -> None:
    """Refuse a sampler whose epochs cannot be reordered and shall be; raises UsageError."""
    if cache.locality == "epochs" and not (isinstance(sampler, GroupSampler) and sampler.shuffle):
        raise UsageError(
            'locality "epochs"',
            found=f"{type(sampler).__name__}{' that does not shuffle' * isinstance(sampler, GroupSampler)}",
            expected="a GroupSampler that shuffles, whose epochs have numbers",
            remedy="pass voxload.loader.sampler.GroupSampler(data, data.grid, shuffle=True), or leave locality out",
        )


def reorder_epochs(
    cache: Cache,
    sampler: GroupSampler,
    *,
    kept: Kept,
    source: OrderSource,
    tiers: SharedTiers,
    rendezvous: Rendezvous,
    first: int,
) -> None:
    """Choose which shuffle each epoch takes, from epoch `first` on, and tell the sampler; called by all ranks together.

    Raises
    ------
    UsageError
        When groups share no blocks, or ranks choose otherwise than each other.
    """
    own = range(cache.epochs or 0)
    line, held = agreed(kept, tiers, rendezvous)
    found = reorder(source.numbered(own[first:]), line, held, policies.named(cache.policy))
    chosen = (*own[:first], *(first + place for place in found))
    everyone = rendezvous.gather(str(chosen), str)
    differing = [rank for rank, one in enumerate(everyone) if one != everyone[0]]
    if differing:
        raise UsageError(
            'locality "epochs"',
            found=f"ranks {differing} that order epochs otherwise than rank 0",
            expected="the same sampler, epoch, state and number of epochs on all ranks",
            remedy="make loaders and caches alike, and call set_epoch and load_state_dict alike on all ranks",
        )
    sampler.shuffles = chosen
