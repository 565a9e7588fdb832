"""Claim: with 2 to 16 threads on one file, in one process, a read is not slower than with 2 beyond noise.

Two ways of using n threads are timed on the last octant of 512^3 int16 counts, from memory, into a reused buffer:
`team`, one read by a team of n (set_threads), and `callers`, n threads of the caller's that each read an equal part of
the octant at once. Runs are interleaved: every round times each number of threads once, another one first each time.
Printed are medians, their ratio to 2 threads, and the noise: the standard error of that ratio, from the quartiles. The
exit status is 1 when a ratio is above 1 by more than --margin and by more than three times its noise.

    python bench/read_threads.py [--folder DATA] [--size 512] [--rounds 15] [--margin 0.1] [--json]
"""

from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.samples import counts
from bench.harness.script import finish, folder, parser
from bench.reading.cases import octant
from voxload.benchmark.cold.pagecache import warm
from voxload.benchmark.measure.turns import Bystanders, Turns, in_turns, seconds
from voxload.geometry import Box, split
from voxload.readers import Reader, open_reader
from voxload.readers.team import default_threads, set_threads

NAMES = ("hdf5-gzip", "hdf5-chunked", "zarr-blosc-lz4", "zarr-sharded-raw")
THREADS = (2, 4, 8, 16)
CHUNK = 64
Volume = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Row:
    """How long one way of reading takes."""

    layout: str
    way: str
    """``team`` or ``callers``."""
    threads: int
    milliseconds: float
    """Median."""
    ratio: float
    """To 2 threads; above 1 is slower."""
    noise: float
    """Standard error of the ratio."""
    bystanders: float
    """Cores that others kept busy meanwhile."""

    def is_slower(self, margin: float) -> bool:
        """Tell whether it is slower than 2 threads beyond noise."""
        return self.ratio > 1 + margin and self.ratio - 1 > 3 * self.noise


def parts(box: Box, count: int) -> list[Box]:
    """Cut a box along its first axis, and the second one where it has too few rows of chunks."""
    rows = min(count, max(1, box.shape[0] // CHUNK))
    columns = count // rows
    found = []
    for top, bottom in pairwise(split(box.shape[0], rows)):
        for left, right in pairwise(split(box.shape[1], columns)):
            start = (box.start[0] + top, box.start[1] + left, box.start[2])
            found.append(Box(start, (box.start[0] + bottom, box.start[1] + right, box.stop[2])))
    return found


def time_layout(name: str, place: Path, size: int, rounds: int) -> list[Row]:
    """Time all numbers of threads in both ways."""
    sample = counts(name, place, size, chunk=CHUNK)
    warm(sample.files())
    box = octant(size, 0)
    out = np.zeros((1, *box.shape), np.int16)
    rows = []
    with closing(open_reader(sample.location)) as reader:
        for way, measure in (("team", _team), ("callers", _callers)):
            bystanders = Bystanders()
            turns = in_turns(THREADS, rounds, partial(measure, reader, box, out))
            others = bystanders.cores()
            rows += [_row(name, way, count, turns, others) for count in THREADS]
    set_threads(default_threads())
    return rows


def _team(reader: Reader, box: Box, out: Volume, count: int) -> float:
    """Time one read by a team of `count`, whose threads have been started by a read before."""
    set_threads(count)
    reader.read_into(box, out)
    return seconds(lambda: reader.read_into(box, out))


def _callers(reader: Reader, box: Box, out: Volume, count: int) -> float:
    """Time `count` threads that each read their part at once; the team has its default size."""
    set_threads(default_threads())
    pieces = parts(box, count)

    def read(piece: Box) -> None:
        reader.read_into(piece, out[(slice(None), *piece.relative_to(box.start).slices)])

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(read, pieces))
        return seconds(lambda: list(pool.map(read, pieces)))


def _row(layout: str, way: str, count: int, turns: Turns[int, float], others: float) -> Row:
    median, least = turns.median(count), turns.median(2)
    ratio = median / least
    noise = ratio * math.hypot(turns.error(count) / median, turns.error(2) / least) if count != 2 else 0.0
    return Row(layout, way, count, median * 1e3, ratio, noise, others)


def main() -> int:
    """Parse the command line and run."""
    options = parser(__doc__, folder="samples", size=512, rounds=15)
    options.add_argument("--margin", type=float, default=0.1, help="part of a read that counts as no slowdown")
    words = options.parse_args()
    if words.size % (8 * CHUNK):
        options.error(f"--size must be a multiple of {8 * CHUNK}: parts of 16 callers would share chunks")
    with folder(words.folder) as place:
        rows = [row for name in NAMES for row in time_layout(name, place, words.size, words.rounds)]
    return finish(words, rows, lambda row: not row.is_slower(words.margin))


if __name__ == "__main__":
    sys.exit(main())
