"""Claim: a state is made in under 1 ms and 1 KiB, and resuming at batch 10,000 costs under 1.1 of resuming at batch 1.

A shuffled epoch of small volumes is left at both places, and a new loader goes on there: timed is load_state_dict, the
making of an iterator, and its first batch: the least of several runs that take turns. Printed beside it is
torchdata's StatefulDataLoader, where it is installed, over the indices alone: it draws all batches again that lie
before. The exit status is 1 when a limit is exceeded.

    python bench/resume.py [--samples 20001] [--place 10000] [--runs 21] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import voxload

MILLISECONDS, BYTES, RATIO = 1.0, 1024, 1.1
"""Limits of the claim."""
_EDGE = 8
_BATCH = 2


def _ours(data: voxload.VolumeDataset) -> voxload.DataLoader:
    return voxload.DataLoader(data, _BATCH, shuffle=True, generator=torch.Generator().manual_seed(1))


def _theirs(samples: int) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: PLC0415 - compared with where it is installed

    return StatefulDataLoader(list(range(samples)), _BATCH, shuffle=True, generator=torch.Generator().manual_seed(1))


def _seconds(make: Callable[[], Any], places: tuple[int, ...], runs: int) -> tuple[list[float], float, int]:
    """Return the seconds to the first batch at each place, those that saving takes, and the bytes of a state."""
    states, saving = [], []
    for place in places:
        loader = make()
        batches = iter(loader)
        for _ in islice(batches, place):
            pass
        for _ in range(100):
            begun = perf_counter()
            state = loader.state_dict()
            saving.append(perf_counter() - begun)
        states.append(state)
        del batches
    spent: list[list[float]] = [[] for _ in places]
    for _ in range(runs):
        for taken, state in zip(spent, states, strict=True):
            loader = make()
            begun = perf_counter()
            loader.load_state_dict(state)
            batches = iter(loader)
            next(batches)
            taken.append(perf_counter() - begun)
            del batches, loader
    nbytes = max(len(json.dumps(state, default=repr)) for state in states)
    return [min(taken) for taken in spent], median(saving), nbytes


def main() -> int:
    """Time both loaders; return 1 where ours exceeds a limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_100, help="samples of the epoch")
    parser.add_argument("--place", type=int, default=10_000, help="batch that is resumed at")
    parser.add_argument("--runs", type=int, default=21, help="times that each is resumed")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    places = (1, given.place)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        volume = np.zeros((_EDGE,) * 3, np.int16)
        for index in range(given.samples):
            np.save(folder / f"{index:06}.npy", volume)
        with closing(voxload.VolumeDataset(f"{folder}/*.npy")) as data:
            (first, late), saving, nbytes = _seconds(lambda: _ours(data), places, given.runs)
    figures: dict[str, Any] = {
        "state_ms": saving * 1e3,
        "state_bytes": nbytes,
        "resume_ms": {"1": first * 1e3, str(given.place): late * 1e3},
        "ratio": late / first,
    }
    try:
        (first, late), saving, _ = _seconds(lambda: _theirs(given.samples), places, given.runs)
        figures["torchdata"] = {
            "state_ms": saving * 1e3,
            "resume_ms": {"1": first * 1e3, str(given.place): late * 1e3},
            "ratio": late / first,
        }
    except ImportError:
        figures["torchdata"] = None
    sys.stdout.write(json.dumps(figures) + "\n" if given.json else _table(figures))
    return int(figures["state_ms"] > MILLISECONDS or nbytes > BYTES or figures["ratio"] > RATIO)


def _table(figures: dict[str, Any]) -> str:
    lines = [f"{'':12} {'state':>10} {'at batch 1':>12} {'later':>12} {'ratio':>7}"]
    for name, row in (("voxload", figures), ("torchdata", figures["torchdata"])):
        if row is not None:
            first, late = row["resume_ms"].values()
            lines.append(f"{name:12} {row['state_ms']:7.3f} ms {first:9.2f} ms {late:9.2f} ms {row['ratio']:7.2f}")
    return "\n".join([*lines, f"a state has {figures['state_bytes']} bytes as JSON", ""])


if __name__ == "__main__":
    sys.exit(main())
