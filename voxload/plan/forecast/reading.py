"""Reading: what ranks read of a data set, and what steps wait for it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from voxload.catalog.table import Catalog
from voxload.data.lists.samples import location_of
from voxload.errors import UsageError
from voxload.geometry import Boundary
from voxload.grid import ProcessGrid
from voxload.plan.forecast.setups import Setup
from voxload.prefetch import policies
from voxload.prefetch.line import Line
from voxload.prefetch.order.replays import shuffled_orders
from voxload.prefetch.simulate import Machine, Model, Workload, run
from voxload.readers import Location, open_reader
from voxload.readers.protocol import ReadCost
from voxload.readers.requests import block_cost

EPOCHS = 3
"""That are simulated: the first, in which all comes from the storage, and two behind it."""
_WAITS = 0.01
"""Share of a step from which on waiting for data counts."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """Samples that are alike, and how one of them is stored."""

    samples: int
    location: Location
    """Of a sample whose cost stands for all."""
    shape: tuple[int, ...]
    """(C, D, H, W)."""
    whole: ReadCost
    """Of reading a sample by one rank."""

    @classmethod
    def of(cls, catalog: Catalog, dataset: str = "", *, allow_outside: bool = False) -> DataSet:
        """Return what a catalogue lists; raises UsageError where that are several data sets, and none is named."""
        names = catalog.datasets
        if dataset not in names and (dataset or len(names) != 1):
            raise UsageError("data set", found=repr(dataset), expected=" or ".join(map(repr, names)))
        entry = catalog.entry(catalog.samples[0], dataset or names[0])
        location = location_of(entry, catalog.root, allow_outside=allow_outside)
        with closing(open_reader(location)) as reader:
            found = reader.describe()
            return cls(len(catalog.samples), location, found.shape, reader.cost(found.whole))

    def costs(self, spatial: tuple[int, int, int]) -> list[ReadCost]:
        """Return what each rank of a group reads of a sample."""
        grid = ProcessGrid(spatial, prod(spatial))
        with closing(open_reader(self.location)) as reader:
            extents = reader.describe().spatial
            blocks = (grid.at(rank).block(extents) for rank in range(grid.world_size))
            return [block_cost(reader, block, boundary=Boundary.ZERO) for block in blocks]


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading takes, per step unless said otherwise."""

    samples: int
    """Of the data set."""
    stored: int
    """Bytes of the storage that the rank with most reads of its samples."""
    decoded: int
    """Bytes that become of them."""
    amplification: float
    """Bytes that a group reads of a sample, over those that one rank would read."""
    first_epoch: int
    """Bytes that all ranks read of the storage in the first epoch."""
    later_epochs: int
    """In one behind it; what tiers and peers keep is not read again."""
    stall: float | None
    """Seconds that steps wait for data, all epochs together; None where nothing is known of the storage."""
    binds: str
    """What is waited for: ``storage``, ``decoding`` or ``network``; ``nothing`` where that is short."""
    cache: int = 0
    """Bytes of a node's memory that blocks are kept in: what it has for them, and no more than all samples take."""


def reading(data: DataSet, setup: Setup, machine: Machine | None, step: float) -> Reading:
    """Return what a setup reads.

    Parameters
    ----------
    data
        The samples.
    setup
        Who has what.
    machine
        What is read from; None where nothing is known of it.
    step
        Seconds of computing.
    """
    costs = data.costs(setup.spatial)
    most = max(costs, key=lambda cost: cost.stored_bytes)
    together = sum(cost.stored_bytes for cost in costs)
    stored, decoded = setup.samples * most.stored_bytes, setup.samples * most.decoded_bytes
    amplification = together / max(data.whole.stored_bytes, 1)
    epoch = together * data.samples
    if machine is None:
        return Reading(data.samples, stored, decoded, amplification, epoch, epoch, None, "unknown")
    kept = most.decoded_bytes
    line = Line(np.full(data.samples, max(kept, 1), np.int64), (machine.room,) * setup.groups)
    orders = shuffled_orders(data.samples, setup.groups, batch=setup.samples, seed=0, epochs=EPOCHS)
    sizes = np.full(data.samples, max(most.stored_bytes, 1), np.int64)
    work = Workload(line, orders, step, prod(setup.spatial), sizes)
    outcome = run(machine, work, policies.named("clairvoyant"), model=Model.STEPS)
    stall = outcome.stall / work.steps
    first, *later = outcome.epochs
    share = together / max(most.stored_bytes * len(costs), 1)  # not all blocks are as large as the largest
    return Reading(
        data.samples,
        stored,
        decoded,
        amplification,
        int(first.storage_bytes * share),
        int(sum(each.storage_bytes for each in later) / len(later) * share),
        stall,
        _binding(machine, setup, stored, decoded) if stall > _WAITS * step else "nothing",
        min(machine.memory.nbytes, data.whole.decoded_bytes * data.samples),
    )


def _binding(machine: Machine, setup: Setup, stored: int, decoded: int) -> str:
    """Return what takes longest for a step's blocks."""
    rate = machine.storage.read.of(setup.ranks) / setup.ranks
    decoding = machine.staging.threads * machine.staging.decode
    seconds = {
        "storage": stored / rate,
        "decoding": decoded / decoding if decoding < inf else 0.0,
        "network": stored / machine.network.rate,
    }
    return max(seconds, key=seconds.__getitem__)
