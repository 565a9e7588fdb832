"""Claim: with a locality, less comes from the storage and from peers, and as much as is predicted, within 10 %.

Four sample groups of one rank each load epochs with memories that hold a part of the data set; every rank counts the
blocks that came from the storage and from peers, and `voxload.prefetch.simulate` predicts them, in what plans take a
block to have. What is fetched ahead of an epoch counts where it was fetched. The exit status is 1 when, over all
epochs, what is counted is off by more than 10 %, or not less than without the option; with "epochs", more than 1 %
above it, for there it falls by less than counts differ from one run to the next.

    python bench/locality.py [--samples 256] [--size 32] [--epochs 6] [--share 0.5] [--policies NAMES] [--json]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.script import finish, folder, names, number, parser
from bench.prefetching.dealt import BATCH, RANKS, SOURCES, Counted, Setting, counted, write
from voxload.prefetch import machines, policies
from voxload.prefetch.order.dealing import LOCALITIES
from voxload.prefetch.order.replays import shuffled_orders
from voxload.prefetch.simulate import Model, Workload, run
from voxload.prefetch.simulation.machine import Staging

_LIMIT = 0.1
_EVEN = 1.01
_SLOTS = 6
"""Of a rank with as few threads as ours."""
_MB = 1e6


@dataclass(frozen=True, slots=True)
class Row:
    """Megabytes of one epoch, or of all."""

    policy: str
    locality: str
    epoch: str
    storage_predicted: float
    storage: float
    peer_predicted: float
    peer: float
    without: float | None = None
    """From both without the option."""

    @property
    def moved(self) -> float:
        """From both."""
        return self.storage + self.peer

    def is_right(self) -> bool:
        """Tell whether it is within the claim, which is about all epochs."""
        if self.epoch != "all":
            return True
        predicted = self.storage_predicted + self.peer_predicted
        is_less = self.without is None or self.moved < self.without * (_EVEN if self.locality == "epochs" else 1)
        return abs(self.moved - predicted) <= _LIMIT * predicted and is_less


def predicted(setting: Setting, found: Counted) -> dict[str, list[int]]:
    """Return the bytes of each epoch as the simulator has them, by source."""
    staging = Staging(0, _SLOTS, threads=2, decode=float("inf"))
    orders = shuffled_orders(len(found.line.sizes), RANKS, batch=BATCH, seed=0, epochs=setting.epochs)
    workload = Workload(found.line, orders, 0.01, locality=setting.locality)
    machine = replace(machines.load("lassen"), staging=staging)
    outcome = run(machine, workload, policies.named(setting.policy), model=Model.EVENTS)
    return {
        "storage": [epoch.storage_bytes for epoch in outcome.epochs],
        "peer": [epoch.peer_bytes for epoch in outcome.epochs],
    }


def rows(setting: Setting, without: float | None) -> Iterator[Row]:
    """Yield the rows of a setting, the last one of all epochs."""
    found = counted(setting)
    told = predicted(setting, found)
    columns = [column for kind in SOURCES for column in (told[kind], found.nbytes[kind])]
    named = [str(epoch + 1) for epoch in range(setting.epochs)] + ["all"]
    for epoch, *figures in zip(named, *([*column, sum(column)] for column in columns), strict=True):
        yield Row(
            setting.policy,
            setting.locality or "none",
            epoch,
            storage_predicted=figures[0] / _MB,
            storage=figures[1] / _MB,
            peer_predicted=figures[2] / _MB,
            peer=figures[3] / _MB,
            without=without if epoch == "all" else None,
        )


def main(arguments: Sequence[str]) -> int:
    """Print the rows of each policy, without and with the option."""
    words = parser(__doc__, folder="volumes", size=32)
    words.add_argument("--samples", type=number, default=256, help="samples (default 256)")
    words.add_argument("--epochs", type=number, default=6, help="epochs (default 6)")
    words.add_argument("--share", type=float, default=0.5, help="part that all memories hold (default 0.5)")
    words.add_argument("--policies", type=names(*policies.NAMES), default=("clairvoyant", "lru"))
    chosen = words.parse_args(arguments)
    found: list[Row] = []
    with folder(chosen.folder) as place:
        write(place, samples=chosen.samples, edge=chosen.size)
        for policy in chosen.policies:
            without = None
            for locality in (None, *LOCALITIES):
                setting = Setting(str(place), chosen.epochs, chosen.share, policy, locality)
                found += rows(setting, without)
                without = found[-1].moved if locality is None else without
    return finish(chosen, found, Row.is_right)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
