"""Claim: a state is made in under 1 ms and 1 KiB, and resuming at batch 10,000 costs under 1.1 of resuming at batch 1.

A shuffled epoch of small volumes is left at both places, and a new loader goes on there: timed is load_state_dict, the
making of an iterator, and its first batch: the least of several runs that take turns. Printed beside it is
torchdata's StatefulDataLoader, where it is installed, over the indices alone: it draws all batches again that lie
before. The exit status is 1 when a limit is exceeded.

    python bench/resume.py [--samples 20100] [--place 10000] [--runs 21] [--json]
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import voxload
from bench.harness.script import finish, number, parser
from voxload.benchmark.measure.turns import in_turns, seconds

MILLISECONDS, BYTES, RATIO = 1.0, 1024, 1.1
"""Limits of the claim."""
_EDGE = 8
_BATCH = 2
_SAVES = 100
"""States of which the median time counts, at each place."""


@dataclass(frozen=True, slots=True)
class Row:
    """One loader."""

    loader: str
    state_bytes: int
    """As JSON."""
    state_ms: float
    """To make a state."""
    early_ms: float
    """To the first batch of a loader that goes on at batch 1."""
    late_ms: float
    """The same at the later place."""

    @property
    def ratio(self) -> float:
        """Late to early."""
        return self.late_ms / self.early_ms

    def keeps_limits(self) -> bool:
        """Tell whether it is within the claim's, which are about ours."""
        is_within = self.state_ms <= MILLISECONDS and self.state_bytes <= BYTES and self.ratio <= RATIO
        return self.loader != "voxload" or is_within


def _ours(data: voxload.VolumeDataset) -> voxload.DataLoader:
    return voxload.DataLoader(data, _BATCH, shuffle=True, generator=torch.Generator().manual_seed(1))


def _theirs(samples: int) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: PLC0415 - compared with where it is installed

    return StatefulDataLoader(list(range(samples)), _BATCH, shuffle=True, generator=torch.Generator().manual_seed(1))


def measure(name: str, make: Callable[[], Any], place: int, runs: int) -> Row:
    """Leave a loader at batch 1 and at `place`, and go on at both in turns."""
    saving: list[float] = []
    states = {}
    for left in (1, place):
        loader = make()
        batches = iter(loader)
        for _ in islice(batches, left):
            pass
        saving += [seconds(loader.state_dict) for _ in range(_SAVES)]
        states[left] = loader.state_dict()
        del batches

    def run(left: int) -> float:
        loader = make()
        begin = perf_counter()
        loader.load_state_dict(states[left])
        batches = iter(loader)
        next(batches)
        return perf_counter() - begin  # ahead of the end of an iterator, which waits for its threads

    turns = in_turns((1, place), runs, run)
    early, late = (1e3 * min(turns.results[left]) for left in (1, place))
    nbytes = max(len(json.dumps(state, default=repr)) for state in states.values())
    return Row(name, nbytes, 1e3 * median(saving), early, late)


def main() -> int:
    """Time both loaders; return 1 where ours exceeds a limit."""
    options = parser(__doc__)
    options.add_argument("--samples", type=number, default=20_100, help="samples of the epoch (default 20100)")
    options.add_argument("--place", type=number, default=10_000, help="batch that is resumed at (default 10000)")
    options.add_argument("--runs", type=number, default=21, help="times that each is resumed (default 21)")
    words = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        volume = np.zeros((_EDGE,) * 3, np.int16)
        for index in range(words.samples):
            np.save(Path(name) / f"{index:06}.npy", volume)
        with closing(voxload.VolumeDataset(f"{name}/*.npy")) as data:
            rows = [measure("voxload", lambda: _ours(data), words.place, words.runs)]
    try:
        rows.append(measure("torchdata", lambda: _theirs(words.samples), words.place, words.runs))
    except ImportError as error:
        print(f"torchdata: not measured: {error}", file=sys.stderr)
    return finish(words, rows, Row.keeps_limits)


if __name__ == "__main__":
    sys.exit(main())
