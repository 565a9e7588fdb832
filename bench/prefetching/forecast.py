"""Forecast: what the simulator says of a workload, with the throttled server as the machine's storage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from voxload.benchmark.loaders.protocol import epoch_indices
from voxload.benchmark.workload.workload import Workload
from voxload.cache.disk.tier import DiskTier
from voxload.cache.memory.layout import Layout
from voxload.cache.memory.tier import MemoryTier
from voxload.grid import ProcessGrid
from voxload.loader.reading.staging import LEAST_SLOTS
from voxload.prefetch import policies, simulate
from voxload.prefetch.line import EpochOrder, Line, Room
from voxload.prefetch.order.batches import Batching
from voxload.prefetch.planning.limits import Limits
from voxload.prefetch.simulation.machine import Machine, Network, NodeTier, Rates, Staging, Storage

RANKS = 4
SPATIAL = (2, 1, 1)
"""Blocks of a sample."""
GROUPS = RANKS // SPATIAL[0]
_COPY = Rates((1, 2), (2e9, 4e9))
"""Bytes per second that a thread copies and sums, roughly: no run hangs on it."""
_ASK = 2e-4
"""Seconds that a peer takes to answer, roughly."""
_STEP = 1 << 12
"""Bytes by which a file grows while it is too small for its table: one page."""


@dataclass(frozen=True, slots=True)
class Link:
    """The throttled server."""

    bandwidth: float
    """Bytes per second, all clients together."""
    latency: float
    """Seconds of a request."""


@dataclass(frozen=True, slots=True)
class TierRoom:
    """One rank's memory tier, into which so many blocks fit, and not one more."""

    blocks: int
    block_bytes: int

    @property
    def footprint(self) -> int:
        """Bytes that plans count for a block, in whatever tier."""
        return max(MemoryTier.footprint(self.block_bytes), DiskTier.footprint(self.block_bytes))

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks, as plans count them."""
        return self.blocks * self.footprint

    @property
    def file_bytes(self) -> int:
        """Bytes of the file that holds them and their table; 0 where there are none."""
        size = self.nbytes and self.nbytes + _STEP
        while size and size - Layout.within(size, None).data_at < self.nbytes:
            size += _STEP
        return size


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the simulator says."""

    seconds: float
    epochs: tuple[float, ...]
    """Seconds of each."""
    bound: float
    """Seconds below which no policy ends: the most of all computing, and of the voxels read once."""
    storage_bytes: int
    optimum_bytes: int
    """Least bytes that any cache of the same size would read; of the whole data set where there is none."""


def forecast(workload: Workload, samples: int, room: TierRoom, link: Link) -> Forecast:
    """Simulate a workload; without a cache, batches are fetched ahead and nothing is kept: ``staging``."""
    line = Line(np.full(samples, room.footprint, np.int64), (Room(room.nbytes, 0),) * GROUPS)
    simulated = simulate.Workload(
        line,
        _orders(workload, samples),
        float(workload.emulation.seconds),
        SPATIAL[0],
        np.full(samples, room.block_bytes, np.int64),
    )
    policy = policies.named(workload.supply.policy or "staging")
    outcome = simulate.run(_machine(workload, room, link), simulated, policy, model=simulate.Model.EVENTS)
    reads = simulate.optimum_storage_bytes(simulated.orders, line) // room.footprint
    return Forecast(
        seconds=outcome.seconds,
        epochs=tuple(epoch.seconds for epoch in outcome.epochs),
        bound=outcome.bound.seconds,
        storage_bytes=outcome.storage_bytes,
        optimum_bytes=reads * room.block_bytes * SPATIAL[0],
    )


def _orders(workload: Workload, samples: int) -> list[EpochOrder]:
    """Return the orders that all loaders are asked for."""
    grids = [ProcessGrid(SPATIAL, RANKS, group * SPATIAL[0]) for group in range(GROUPS)]
    cut = Batching(workload.share.batch_size, drop_last=False)
    return [
        EpochOrder(
            epoch, cut.of(np.array([epoch_indices(workload.share, samples, grid, epoch) for grid in grids], np.int64))
        )
        for epoch in range(workload.length.epochs)
    ]


def _machine(workload: Workload, room: TierRoom, link: Link) -> Machine:
    """Describe this machine: four ranks on one node, and a storage that gives them one bandwidth together."""
    limits, supply = Limits(), workload.supply
    return Machine(
        name="throttled server",
        source="bench/prefetch.py",
        ranks_per_node=RANKS,
        compute_rate=0.0,
        compute_seconds=0.0,
        storage=Storage(link.latency, supply.threads, Rates((1,), (link.bandwidth,))),
        network=Network(_ASK, limits.peer, _COPY.best(2)),
        memory=NodeTier(RANKS * room.nbytes, limits.local, _COPY, _COPY),
        disk=None,
        staging=Staging(0, supply.threads * supply.prefetch + LEAST_SLOTS, supply.threads, float("inf")),
    )
