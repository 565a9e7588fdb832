"""Forecast: what the simulator says of a run, with the throttled server as the machine's storage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.prefetching.contender import Contender, Recipe
from bench.prefetching.launch import RANKS
from bench.prefetching.room import TierRoom
from bench.prefetching.samples import SPATIAL, Samples
from voxload.grid import ProcessGrid
from voxload.loader.reading.staging import LEAST_SLOTS
from voxload.loader.sampler import GroupSampler
from voxload.prefetch import policies
from voxload.prefetch.line import EpochOrder, Line, Room
from voxload.prefetch.order.batches import Batching
from voxload.prefetch.planning.limits import Limits
from voxload.prefetch.simulate import Machine, Model, Workload, optimum_storage_bytes, run
from voxload.prefetch.simulation.machine import Network, NodeTier, Rates, Staging, Storage

GROUPS = RANKS // SPATIAL[0]
_COPY = Rates((1, 2), (2e9, 4e9))
"""Bytes per second that a thread copies and sums, roughly: no run hangs on it."""
_ASK = 2e-4
"""Seconds that a peer takes to answer, roughly."""
_PREFETCH = 2
"""Batches ahead for each thread, as torch has it."""


@dataclass(frozen=True, slots=True)
class Link:
    """The throttled server."""

    bandwidth: float
    """Bytes per second, all clients together."""
    latency: float
    """Seconds of a request."""


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


def forecast(contender: Contender, samples: Samples, recipe: Recipe, link: Link, *, compute: float) -> Forecast:
    """Simulate a contender; without a cache, batches are fetched ahead and nothing is kept: ``staging``."""
    room = TierRoom(contender.rank_blocks(samples.count, GROUPS), samples.block_bytes)
    line = Line(np.full(samples.count, room.footprint, np.int64), (Room(room.nbytes, 0),) * GROUPS)
    workload = Workload(
        line,
        _orders(samples.count, recipe),
        compute,
        SPATIAL[0],
        np.full(samples.count, samples.block_bytes, np.int64),
    )
    outcome = run(
        _machine(room, recipe, link), workload, policies.named(contender.policy or "staging"), model=Model.EVENTS
    )
    reads = optimum_storage_bytes(workload.orders, line) // room.footprint
    return Forecast(
        seconds=outcome.seconds,
        epochs=tuple(epoch.seconds for epoch in outcome.epochs),
        bound=outcome.bound.seconds,
        storage_bytes=outcome.storage_bytes,
        optimum_bytes=reads * samples.block_bytes * SPATIAL[0],
    )


def _orders(samples: int, recipe: Recipe) -> list[EpochOrder]:
    """Return the orders that the ranks draw."""
    grids = [ProcessGrid(SPATIAL, RANKS, group * SPATIAL[0]) for group in range(GROUPS)]
    samplers = [GroupSampler(range(samples), grid, shuffle=True, seed=recipe.seed) for grid in grids]
    cut = Batching(recipe.batch, drop_last=False)
    return [
        EpochOrder(epoch, cut.of(np.array([list(sampler) for sampler in samplers], np.int64)))
        for epoch in range(recipe.epochs)
    ]


def _machine(room: TierRoom, recipe: Recipe, link: Link) -> Machine:
    """Describe this machine: four ranks on one node, and a storage that gives them one bandwidth together."""
    limits = Limits()
    return Machine(
        name="throttled server",
        source="bench/prefetch.py",
        ranks_per_node=RANKS,
        compute_rate=0.0,
        compute_seconds=0.0,
        storage=Storage(link.latency, recipe.threads, Rates((1,), (link.bandwidth,))),
        network=Network(_ASK, limits.peer, _COPY.best(2)),
        memory=NodeTier(RANKS * room.nbytes, limits.local, _COPY, _COPY),
        disk=None,
        staging=Staging(0, recipe.threads * _PREFETCH + LEAST_SLOTS, recipe.threads, float("inf")),
    )
