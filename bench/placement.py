"""Claim: 2,048 groups, 262,144 samples and 10 epochs are placed in under 60 s and 8 GiB on one core.

Each policy plans all epochs in a process of its own, epoch by epoch, with the orders of all coming ones known; the time
is that of planning alone, without drawing the orders, the memory the peak of the whole
process. Every group's tiers hold a part of its share of the data set, half in memory and half on disk. Printed are also
what is read from the storage, as a multiple of the data set, and its ratio to the fewest reads that one cache of all
rooms could make (Belady's MIN with bypass). The exit status is 1 when the clairvoyant policy exceeds a limit.

    python bench/placement.py [--groups 2048] [--samples 262144] [--epochs 10] [--room 0.5] [--policies ...] [--json]
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.script import finish, number, parser
from voxload.prefetch.line import EpochOrder, Held, Line, Room
from voxload.prefetch.order.replays import shuffled_orders
from voxload.prefetch.policies import NAMES, named
from voxload.prefetch.simulation.bound import fewest_reads

SECONDS, BYTES = 60, 8 << 30
"""Limits of the claim."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What is placed."""

    groups: int
    samples: int
    epochs: int
    batch: int
    room: float
    """Part of the data set that all tiers together hold."""

    def line(self) -> Line:
        """Return a line of blocks of one byte."""
        share = round(self.room * self.samples / self.groups)
        return Line(np.ones(self.samples, np.int64), (Room(share - share // 2, share // 2),) * self.groups)

    def orders(self) -> tuple[EpochOrder, ...]:
        """Return the orders of all epochs."""
        return shuffled_orders(self.samples, self.groups, batch=self.batch, seed=0, epochs=self.epochs)


@dataclass(frozen=True, slots=True)
class Row:
    """What one policy takes and gives."""

    policy: str
    seconds: float
    peak_bytes: int
    reads: float
    """Of the storage, as a multiple of the data set."""
    stores: float
    """What tiers store, as a multiple of the data set."""
    of_bound: float
    """Reads to the fewest that are possible."""

    def keeps_limits(self) -> bool:
        """Tell whether it is within the claim's, which are about one policy."""
        return self.policy != "clairvoyant" or (self.seconds < SECONDS and self.peak_bytes < BYTES)


def measure(name: str, scale: Scale, bound: int) -> Row:
    """Plan all epochs; runs in a process of its own."""
    policy, line, orders = named(name), scale.line(), scale.orders()
    begin, reads, stores = time.perf_counter(), 0, 0
    state = policy.begin(line, Held.nothing())
    for place, epoch in enumerate(orders):
        placement, state = policy.place(state, epoch, orders[place + 1 :])
        reads += placement.storage_bytes(line.sizes)
        stores += int((placement.keep >= 0).sum())
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return Row(name, seconds, peak, reads / scale.samples, stores / scale.samples, reads / bound)


def fewest(scale: Scale) -> int:
    """Return the bound; runs in a process of its own, for the same orders."""
    return int(fewest_reads(scale.line(), Held.nothing(), scale.orders()).sum())


def main() -> int:
    """Parse the command line and run policies one after the other."""
    options = parser(__doc__)
    add = options.add_argument
    add("--groups", type=number, default=2048, help="sample groups on the line (default 2048)")
    add("--samples", type=number, default=262_144, help="samples (default 262144)")
    add("--epochs", type=number, default=10, help="epochs (default 10)")
    add("--batch", type=number, default=16, help="samples in a group's batch (default 16)")
    add("--room", type=float, default=0.5, help="part of the data set that all tiers hold (default 0.5)")
    add("--policies", nargs="+", choices=NAMES, default=["clairvoyant"], help="default: clairvoyant")
    words = options.parse_args()
    scale = Scale(words.groups, words.samples, words.epochs, words.batch, words.room)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, max_tasks_per_child=1) as pool:
        bound = pool.submit(fewest, scale).result()
        rows = [pool.submit(measure, name, scale, bound).result() for name in words.policies]
    return finish(words, rows, Row.keeps_limits)


if __name__ == "__main__":
    sys.exit(main())
