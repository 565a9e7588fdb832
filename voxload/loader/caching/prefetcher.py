"""Prefetcher: all that one loader's cache is made of, from the sampler to the tiers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from voxload.loader.cache import Cache
from voxload.loader.caching.blocks import DatasetBlocks
from voxload.loader.caching.dealing import check_dealing, dealing_of
from voxload.loader.caching.epoch_plans import EpochPlans, LineMembers
from voxload.loader.caching.kept import Kept
from voxload.loader.caching.prefetched import PrefetchedBatches, PrefetchedEpoch, Runner
from voxload.loader.caching.reordering import check_reordering, reorder_epochs
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
        self._cache, self._ring, self._threads, self._meter = cache, ring, threads, meter
        self._costs, self._epochs = CostModel(), 0
        self._running = ExitStack()  # what fetches, which goes before the tiers do
        grid = kept.units.data.grid
        check_dealing(cache, kept, source)
        with ExitStack() as stack:
            self._rendezvous = Rendezvous(grid)
            stack.callback(self._rendezvous.close)
            stack.callback(self._running.close)
            blocks = self._blocks_of(kept)
            self.shared_tiers = SharedTiers(cache, grid, self._rendezvous, blocks)
            stack.callback(self.shared_tiers.close)
            stack.callback(self._running.close)
            self._run(kept, source, blocks)
            self._close = weakref.finalize(loader, stack.pop_all().close)

    @property
    def is_busy(self) -> bool:
        """Whether an iterator is under way that somebody still holds."""
        return self._prefetched.is_busy

    @property
    def has_more(self) -> bool:
        """Whether such an iterator has not got all that it is foreseen to."""
        return self._prefetched.has_more

    def check_free(self) -> None:
        """Refuse to begin an epoch beside one that is under way, where samples are dealt; before anything changes.

        An iterator that reads for itself would get what the sampler draws, and other groups what was dealt. Raises
        UsageError, on the ranks that do begin one too.
        """
        if self._dealing is not None and self.is_busy:
            self._dealing.refuse()

    def reorder(self, sampler: Any, *, first: int) -> None:
        """Choose which shuffle each epoch takes from one on, where that is asked for and not chosen yet.

        Called by all ranks together, before an epoch begins; raises what `reorder_epochs` does.
        """
        check_reordering(self._cache, sampler)
        if self._cache.locality == "epochs" and not sampler.shuffles:
            reorder_epochs(
                self._cache,
                sampler,
                kept=self.kept,
                source=self._source,
                tiers=self.shared_tiers,
                rendezvous=self._rendezvous,
                first=first,
            )

    def begin(self, number: int) -> None:
        """Begin the epoch of a number, right before its iterator is made."""
        self._epochs += 1
        self._prefetched.begin(number)

    def epoch(self, drawn: Iterator[Sequence[int]], timeout: float | None, *, passed: Passed) -> PrefetchedEpoch:
        """Return the batches of the epoch begun last; see `PrefetchedBatches.epoch`."""
        return self._prefetched.epoch(drawn, timeout, passed=passed)

    def renew(self, kept: Kept, source: OrderSource) -> None:
        """Read further samples from the next epoch on, and keep what the tiers have; called by all ranks together.

        Parameters
        ----------
        kept
            What is kept of the data set as it is now.
        source
            What its sampler is foreseen to draw.
        """
        self._running.close()
        before, blocks = self._blocks, self._blocks_of(kept)
        self.shared_tiers.renew(blocks, blocks.adopt(before))
        self._run(kept, source, blocks)

    def close(self) -> None:
        """Stop all threads and give everything back; what lies on disk stays."""
        self._close()

    def _blocks_of(self, kept: Kept) -> DatasetBlocks:
        """Return what is kept as blocks, from the service where there is one."""
        if self._cache.service is None:
            return DatasetBlocks(kept.units, kept.items, outlives=self._cache.folder is not None)
        served = ServedBlocks(kept, self._cache)
        self._running.callback(served.close)
        return served

    def _run(self, kept: Kept, source: OrderSource, blocks: DatasetBlocks) -> None:
        """Begin to fetch blocks into tiers and slots."""
        self.kept, self._blocks, self._source = kept, blocks, source
        tiers, rendezvous, cache = self.shared_tiers, self._rendezvous, self._cache
        self._dealing = dealing_of(cache, kept, source, tiers, rendezvous)
        resources = Resources(
            blocks, tiers.near, self._costs, self._meter, readers=self._threads, helpers=_NEAR_THREADS
        )
        executor = Executor(_planner(tiers, kept.units.files(), self._costs, self._threads), resources, self._ring)
        self._running.callback(executor.close)
        runner: Runner = blocks.announced(executor) if isinstance(blocks, ServedBlocks) else executor
        members = LineMembers(
            line=tiers.line,
            group=tiers.group,
            gather=lambda own: [
                order for rank, order in enumerate(rendezvous.gather(own, Ints)) if rank in tiers.ranks
            ],
            holds=lambda tier, sample: tiers.holds(tier, blocks.keys(sample)),
            dealing=self._dealing,
        )
        epoch_plans = EpochPlans(
            kept.items,
            source,
            policies.named(cache.policy),
            members,
            held=tiers.held,
            epochs=None if cache.epochs is None else max(1, cache.epochs - self._epochs),
            is_clairvoyant=cache.clairvoyant,
        )
        self._prefetched = PrefetchedBatches(epoch_plans, runner, kept.items)
        self._running.callback(self._prefetched.close)


def _planner(shared_tiers: SharedTiers, files: Ints, costs: CostModel, threads: int) -> Planner:
    """Return this rank's planner."""
    limits = Limits(storage=threads)
    mine = shared_tiers.held.group == shared_tiers.group
    held = dict(zip(shared_tiers.held.sample[mine].tolist(), shared_tiers.held.tier[mine].tolist(), strict=True))
    return Planner(shared_tiers.line, shared_tiers.group, limits=limits, costs=costs, files=files, held=held)
