"""Claim: to take up what was appended to a catalogue costs an epoch at most twice what it takes to open that catalogue.

One sample is appended to a catalogue of many, in turn with opening it anew: timed is the append, a new data set, the
first batch of an epoch that begins with the new sample, and that of one to which nothing was appended. The exit status
is 1 when the limit is exceeded.

    python bench/following.py [--samples 100000] [--rounds 7] [--json]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import voxload
from bench.harness.script import finish, folder, number, parser
from voxload.catalog import Catalog, Entry, Rows
from voxload.catalog.append import append

RATIO = 2.0
"""Limit of the claim."""
_SHAPE = (4, 4, 4)


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of one size of a catalogue, in milliseconds."""

    samples: int
    append_ms: float
    """To add one sample."""
    open_ms: float
    """To make a data set."""
    grown_ms: float
    """To the first batch of an epoch with a new sample."""
    same_ms: float
    """The same without one."""

    @property
    def ratio(self) -> float:
        """What a new sample costs an epoch, to opening the catalogue."""
        return (self.grown_ms - self.same_ms) / self.open_ms


def _rows(place: Path, names: Sequence[str]) -> Rows:
    """Return rows of one small volume under many names."""
    entries = [Entry(name, "a.npy", "", _SHAPE, "<i2", "DHW", 128, {"t": 1.0}) for name in names]
    return Rows.of(Catalog.from_entries(entries, place).whole, place, name="rows")


def _timed(act: Callable[[], Any]) -> float:
    begin = perf_counter()
    act()
    return 1e3 * (perf_counter() - begin)


def measured(place: Path, *, samples: int, rounds: int) -> Row:
    """Return the times of a catalogue of so many samples, the parts of a round in turn."""
    volumes = place / "volumes"
    volumes.mkdir()
    np.save(volumes / "a.npy", np.zeros(_SHAPE, np.int16))
    append(place, [_rows(volumes, [f"s{one:08}" for one in range(samples)])])
    data = voxload.VolumeDataset(place, targets="t", follow=True)
    times: list[tuple[float, float, float, float]] = []
    with closing(data), closing(voxload.DataLoader(data, 4, shuffle=True)) as loader:

        def first() -> None:
            next(iter(loader))

        first()
        for turn in range(rounds):
            added = _timed(lambda turn=turn: append(place, [_rows(volumes, [f"r{turn}"])]))  # type: ignore[misc]
            grown, same = _timed(first), _timed(first)
            if len(data) != samples + turn + 1:
                raise AssertionError(f"{len(data)} samples")
            opened = _timed(lambda: voxload.VolumeDataset(place, targets="t", follow=True).close())
            times.append((added, opened, grown, same))
    return Row(samples, *(median(one) for one in zip(*times, strict=True)))


def main(arguments: Sequence[str]) -> int:
    """Print the row."""
    words = parser(__doc__, folder="catalogues", rounds=7)
    words.add_argument("--samples", type=number, default=100_000, help="samples of the catalogue (default 100000)")
    chosen = words.parse_args(arguments)
    with folder(chosen.folder) as place:
        row = measured(place, samples=chosen.samples, rounds=chosen.rounds)
    return finish(chosen, [row], lambda row: row.ratio <= RATIO)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
