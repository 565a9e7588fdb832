"""Prefetcher: all that one loader's cache is made of, from the sampler to the tiers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from voxload.loader.cache import Cache
from voxload.loader.caching.blocks import DatasetBlocks
from voxload.loader.caching.epoch_plans import EpochPlans, LineMembers
from voxload.loader.caching.kept import Kept
from voxload.loader.caching.prefetched import PrefetchedBatches, PrefetchedEpoch, Runner
from voxload.loader.caching.served import ServedBlocks
from voxload.loader.caching.tiers import SharedTiers
from voxload.loader.collectives import Rendezvous
from voxload.loader.order.repeats import Passed
from voxload.loader.reading.staging import StagingRing
from voxload.prefetch import policies
from voxload.prefetch.cost import CostModel
from voxload.prefetch.execution.executor import Executor
from voxload.prefetch.execution.resources import Resources
from voxload.prefetch.line import Ints
from voxload.prefetch.meter import Meter
from voxload.prefetch.order.source import OrderSource
from voxload.prefetch.planning.limits import Limits
from voxload.prefetch.planning.planner import Planner

_LIMITS = Limits()
_NEAR_THREADS = _LIMITS.local + _LIMITS.peer + _LIMITS.awaited + 2
"""Threads for memory, disk and peers, of which most wait for peers, and two for what is stored."""


class Prefetcher:
    """Fetches batches ahead and keeps blocks near; made by all ranks together at their first epoch.

    Parameters
    ----------
    loader
        With whose end all of it ends.
    kept
        What is kept of its data set.
    source
        What its sampler is foreseen to draw.
    cache
        What the user asked for.
    ring
        Makes the staging slots, given what to call whenever one came back.
    threads
        Reader threads.
    meter
        Counts what comes from where.
    """

    def __init__(
        self,
        loader: torch.utils.data.DataLoader[Any],
        kept: Kept,
        *,
        source: OrderSource,
        cache: Cache,
        ring: Callable[[Callable[[object], object]], StagingRing],
        threads: int,
        meter: Meter,
    ) -> None:
        self.kept, grid = kept, kept.units.data.grid
        with ExitStack() as stack:
            rendezvous = Rendezvous(grid)
            stack.callback(rendezvous.close)
            served = None if cache.service is None else ServedBlocks(kept, cache)
            if served is not None:
                stack.callback(served.close)
            blocks = served or DatasetBlocks(kept.units, kept.items, outlives=cache.folder is not None)
            shared_tiers = SharedTiers(cache, grid, rendezvous, blocks)
            stack.callback(shared_tiers.close)
            costs = CostModel()
            resources = Resources(blocks, shared_tiers.near, costs, meter, readers=threads, helpers=_NEAR_THREADS)
            executor = Executor(_planner(shared_tiers, kept.units.files(), costs, threads), resources, ring)
            stack.callback(executor.close)
            runner: Runner = executor if served is None else served.announced(executor)
            members = LineMembers(
                line=shared_tiers.line,
                group=shared_tiers.group,
                gather=lambda own: [
                    order for rank, order in enumerate(rendezvous.gather(own, Ints)) if rank in shared_tiers.ranks
                ],
                holds=lambda tier, sample: shared_tiers.holds(tier, blocks.keys(sample)),
            )
            epoch_plans = EpochPlans(
                kept.items,
                source,
                policies.named(cache.policy),
                members,
                held=shared_tiers.held,
                epochs=cache.epochs,
                is_clairvoyant=cache.clairvoyant,
            )
            self._prefetched = PrefetchedBatches(epoch_plans, runner, kept.items)
            stack.callback(self._prefetched.close)
            self.shared_tiers = shared_tiers
            self._close = weakref.finalize(loader, stack.pop_all().close)

    @property
    def is_busy(self) -> bool:
        """Whether an iterator is under way that somebody still holds."""
        return self._prefetched.is_busy

    def begin(self, number: int) -> None:
        """Begin the epoch of a number, right before its iterator is made."""
        self._prefetched.begin(number)

    def epoch(self, drawn: Iterator[Sequence[int]], timeout: float | None, *, passed: Passed) -> PrefetchedEpoch:
        """Return the batches of the epoch begun last; see `PrefetchedBatches.epoch`."""
        return self._prefetched.epoch(drawn, timeout, passed=passed)

    def close(self) -> None:
        """Stop all threads and give everything back; what lies on disk stays."""
        self._close()


def _planner(shared_tiers: SharedTiers, files: Ints, costs: CostModel, threads: int) -> Planner:
    """Return this rank's planner."""
    limits = Limits(storage=threads)
    mine = shared_tiers.held.group == shared_tiers.group
    held = dict(zip(shared_tiers.held.sample[mine].tolist(), shared_tiers.held.tier[mine].tolist(), strict=True))
    return Planner(shared_tiers.line, shared_tiers.group, limits=limits, costs=costs, files=files, held=held)
