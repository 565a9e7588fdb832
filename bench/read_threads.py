"""Claim: with 2 to 16 threads on one file, in one process, a read is not slower than with 2 beyond noise.

Two ways of using n threads are timed on the last octant of 512^3 int16 counts, from memory, into a reused buffer:
`team`, one read by a team of n (set_threads), and `callers`, n threads of the caller's that each read an equal part of
the octant at once. Runs are interleaved: every round times each number of threads once, another one first each time.
Printed are medians, their ratio to 2 threads, and the noise: the standard error of that ratio, from the quartiles. The
exit status is 1 when a ratio is above 1 by more than --margin and by more than three times its noise.

    python bench/read_threads.py [--folder DATA] [--size 512] [--rounds 15] [--margin 0.1] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.reading import pagecache
from bench.reading.bystanders import Bystanders
from bench.reading.cases import octant
from bench.reading.fields import load_field
from bench.reading.samples import LAYOUTS, store
from voxload.geometry import Box, split
from voxload.readers import Location, Reader, open_reader
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


def time_layout(name: str, folder: Path, size: int, rounds: int) -> list[Row]:
    """Time all numbers of threads in both ways."""
    sample = store(LAYOUTS[name], load_field(folder, "int16", size), chunk=CHUNK)
    pagecache.warm(sample.files())
    reader = open_reader(Location(str(sample.path), "x" if sample.path.is_file() else ""))
    box = octant(size, 0)
    out = np.zeros((1, *box.shape), np.int16)
    rows = []
    for way, measure in (("team", _team), ("callers", _callers)):
        bystanders = Bystanders()
        times: dict[int, list[float]] = {count: [] for count in THREADS}
        for turn in range(rounds):
            for place in range(len(THREADS)):
                count = THREADS[(turn + place) % len(THREADS)]
                times[count].append(measure(reader, box, out, count))
        rows += _rows(name, way, times, bystanders.cores())
    set_threads(default_threads())
    reader.close()
    return rows


def _team(reader: Reader, box: Box, out: Volume, count: int) -> float:
    """Time one read by a team of `count`, whose threads have been started by a read before."""
    set_threads(count)
    reader.read_into(box, out)
    begin = time.perf_counter()
    reader.read_into(box, out)
    return time.perf_counter() - begin


def _callers(reader: Reader, box: Box, out: Volume, count: int) -> float:
    """Time `count` threads that each read their part at once; the team has its default size."""
    set_threads(default_threads())
    pieces = parts(box, count)

    def read(piece: Box) -> None:
        reader.read_into(piece, out[(slice(None), *piece.relative_to(box.start).slices)])

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(read, pieces))
        begin = time.perf_counter()
        list(pool.map(read, pieces))
        return time.perf_counter() - begin


def _rows(name: str, way: str, times: dict[int, list[float]], others: float) -> list[Row]:
    medians = {count: float(np.median(found)) for count, found in times.items()}
    errors = {count: _error(found) / medians[count] for count, found in times.items()}
    return [
        Row(
            layout=name,
            way=way,
            threads=count,
            milliseconds=medians[count] * 1e3,
            ratio=medians[count] / medians[2],
            noise=float(np.hypot(errors[count], errors[2])) * medians[count] / medians[2] if count != 2 else 0.0,
            bystanders=others,
        )
        for count in times
    ]


def _error(times: list[float]) -> float:
    """Return the standard error of a median, from the quartiles, for a normal distribution."""
    low, high = np.percentile(times, (25, 75))
    return float(1.2533 * (high - low) / 1.349 / np.sqrt(len(times)))


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where samples are kept (default: a temporary folder)")
    parser.add_argument("--size", type=int, default=512, help="voxels along each axis (default 512)")
    parser.add_argument("--rounds", type=int, default=15, help="times that each is timed (default 15)")
    parser.add_argument("--margin", type=float, default=0.1, help="part of a read that counts as no slowdown")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    words = parser.parse_args()
    if words.size < 8 * CHUNK or words.size % (8 * CHUNK):
        parser.error(f"--size must be a multiple of {8 * CHUNK}: parts of 16 callers would share chunks")
    with tempfile.TemporaryDirectory() as scratch:
        folder = words.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        rows = [row for name in NAMES for row in time_layout(name, folder, words.size, words.rounds)]
    if words.json:
        print(json.dumps([asdict(row) | {"is_slower": row.is_slower(words.margin)} for row in rows], indent=1))
    else:
        print(f"{'layout':<18} {'way':<8} threads {'ms':>8} {'ratio':>7} {'noise':>7} {'others':>7}")
        for row in rows:
            figures = f"{row.milliseconds:>8.2f} {row.ratio:>7.2f} {row.noise:>7.2f} {row.bystanders:>7.2f}"
            verdict = "   SLOWER" if row.is_slower(words.margin) else ""
            print(f"{row.layout:<18} {row.way:<8} {row.threads:>7} {figures}{verdict}")
    return int(any(row.is_slower(words.margin) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
