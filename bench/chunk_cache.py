"""Claim: with a chunk cache, neighbouring reads decode no chunk twice, and take less time for it.

Two cases, of 512^3 int16 counts in chunks of 64^3, from memory, each with and without a cache that has room for all:

- `halo`: an octant, and then the same octant with a halo of 2 voxels, by one caller.
- `neighbours`: all eight octants with a halo of 2 voxels, as ranks of a node would read them, by two callers at once.

Each is timed as in the middle of a run, with a cache full of chunks that nobody wants any more: those of the same files
before these were given another time. Rounds without and with a cache take turns. Printed are the chunks that are
decoded, the median times and their ratio. The exit status is 1 when a chunk is decoded twice with the cache.

    python bench/chunk_cache.py [--folder DATA] [--size 512] [--rounds 7] [--json]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.samples import Sample, counts
from bench.harness.script import finish, folder, parser
from voxload.benchmark.cold.pagecache import warm
from voxload.benchmark.measure.turns import in_turns, seconds
from voxload.geometry import Box, chunks_touched
from voxload.readers import chunk_cache, open_reader, set_chunk_cache
from voxload.readers.chunks.chunkcache import ENTRY_BYTES
from voxload.readers.storage.stamp import Stamp

NAMES = ("hdf5-gzip", "hdf5-zstd", "hdf5-blosc-lz4", "zarr-blosc-lz4", "zarr-gzip", "zarr-sharded-blosc")
CHUNK = 64
HALO = 2
CALLERS = {"halo": 1, "neighbours": 2}
Volume = npt.NDArray[np.int16]
_A_MINUTE = 60 * 10**9
_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Row:
    """One case of one layout."""

    layout: str
    case: str
    chunks: int
    """Different chunks that the reads touch."""
    decoded_without: int
    """Chunks decoded without a cache."""
    decoded_with: int
    """Chunks decoded with it."""
    milliseconds_without: float
    """Median."""
    milliseconds_with: float
    """Median."""

    @property
    def ratio(self) -> float:
        """How many times as fast the cache makes it."""
        return self.milliseconds_without / self.milliseconds_with


def boxes(case: str, size: int) -> list[Box]:
    """Return what a case reads."""
    half = size // 2
    corners = [tuple(half * place for place in corner) for corner in product((0, 1), repeat=3)]
    octants = [Box(corner, tuple(low + half for low in corner)) for corner in corners]
    grown = [
        Box(tuple(max(0, low - HALO) for low in one.start), tuple(min(size, high + HALO) for high in one.stop))
        for one in octants
    ]
    return [octants[-1], grown[-1]] if case == "halo" else grown


def time_once(sample: Sample, wanted: Sequence[Box], outs: Sequence[Volume], callers: int) -> float:
    """Return the seconds that reading all boxes takes, by so many threads of the caller's; no chunk is kept before."""
    for file in sample.files():
        # Another time, so that its chunks are others; long ago, for of files written just now nothing is kept.
        when = min(file.stat().st_mtime_ns - 1, time.time_ns() - _A_MINUTE)
        os.utime(file, ns=(when, when))
    while not all(Stamp.of(str(file)).is_settled for file in sample.files()):
        time.sleep(_PAUSE)
    with closing(open_reader(sample.location)) as reader, ThreadPoolExecutor(callers) as pool:
        return seconds(lambda: list(pool.map(reader.read_into, wanted, outs)))


def measure(sample: Sample, case: str, rounds: int) -> Row:
    """Time one case without and with a cache, in turns."""
    wanted, callers = boxes(case, sample.size), CALLERS[case]
    outs = [np.zeros((1, *box.shape), np.int16) for box in wanted]
    places = {place for box in wanted for place in _places(box)}
    budget = len(places) * (CHUNK**3 * 2 + ENTRY_BYTES)

    def run(chosen: int) -> tuple[float, int]:
        """Return the seconds, and the chunks that the cache did not have."""
        set_chunk_cache(chosen)
        time_once(sample, wanted, outs, callers)
        cache = chunk_cache()
        before = cache.figures().misses if cache else 0
        spent = time_once(sample, wanted, outs, callers)
        return spent, cache.figures().misses - before if cache else 0

    try:
        turns = in_turns((0, budget), rounds, run)
    finally:
        set_chunk_cache(0)
    spent = turns.figures(itemgetter(0))
    return Row(
        layout=sample.layout,
        case=case,
        chunks=len(places),
        decoded_without=sum(len(_places(box)) for box in wanted),
        decoded_with=max(misses for _, misses in turns.results[budget]),
        milliseconds_without=spent.median(0) * 1e3,
        milliseconds_with=spent.median(budget) * 1e3,
    )


def _places(box: Box) -> list[tuple[int, ...]]:
    touched = chunks_touched(box, (CHUNK,) * 3)
    return list(product(*(range(low, high) for low, high in zip(touched.start, touched.stop, strict=True))))


def main() -> int:
    """Parse the command line and run."""
    words = parser(__doc__, folder="samples", size=512, rounds=7).parse_args()
    rows = []
    with folder(words.folder) as place:
        for name in NAMES:
            sample = counts(name, place, words.size, chunk=CHUNK)
            warm(sample.files())
            rows += [measure(sample, case, words.rounds) for case in CALLERS]
    return finish(words, rows, lambda row: row.decoded_with <= row.chunks)


if __name__ == "__main__":
    sys.exit(main())
