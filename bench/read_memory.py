"""Claim: an octant read allocates its output and, for each thread, one stored and one decoded chunk, and no more.

Writes 512^3 int16 counts in chunks of 64^3 in six layouts, and reads the last octant of each into a buffer that has
been touched before, in a process of its own, with 1, 2 and 8 threads. Two figures are taken of the read alone:

- `anonymous`: how much the process's anonymous memory (RssAnon of /proc/<pid>/status) grew at most, asked from outside
  all the time. Pages of files that are mapped are the page cache's and not counted.
- `Python`: the peak of what Python and numpy allocated, by tracemalloc, in another process.

The bound is threads x (largest stored chunk + decoded chunk), plus --slack KiB for objects of the interpreter, stacks
of threads and contexts of decoders, and as much again for each thread. The exit status is 1 when a figure is above it.

    python bench/read_memory.py [--folder DATA] [--size 512] [--threads 1 2 8] [--slack 256] [--json]
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.children import started
from bench.harness.samples import Sample, counts
from bench.harness.script import finish, folder, number, parser
from bench.reading.cases import octant
from voxload.geometry import Box
from voxload.readers import Location, open_reader
from voxload.readers.team import set_threads

NAMES = ("hdf5-chunked", "hdf5-gzip", "hdf5-zstd", "zarr-blosc-lz4", "zarr-gzip", "zarr-sharded-raw")
CHUNK = 64
SMALL, SMALL_CHUNK = 128, 16
"""Of the sample that each process reads first, so that nothing is imported, compiled or started in the read that
counts; its chunks are so small that buffers for the others' are not there yet."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one read allocated."""

    layout: str
    threads: int
    anonymous: int
    """Growth of the anonymous memory, in bytes."""
    python: int
    """Peak of the memory of Python and numpy, in bytes."""
    bound: int
    """What may be allocated, in bytes, with the slack."""

    @property
    def is_within(self) -> bool:
        """Whether both figures keep the bound."""
        return max(self.anonymous, self.python) <= self.bound


def outside(sample: Sample, small: Sample, threads: int) -> int:
    """Return how much the anonymous memory of a reading process grows at most."""
    with started("bench.read_memory:reading", *_words(sample, small, threads)) as child:

        def anonymous() -> int:
            return child.figure("status", "RssAnon") << 10

        before = most = anonymous()
        child.send()
        while not child.has_answered():
            most = max(most, anonymous())
        most = max(most, anonymous())
        child.answer()
    return most - before


def inside(sample: Sample, small: Sample, threads: int) -> int:
    """Return the peak of what Python and numpy allocate in a reading process."""
    with started("bench.read_memory:traced", *_words(sample, small, threads)) as child:
        return int(child.ask())


def _words(sample: Sample, small: Sample, threads: int) -> tuple[list[str], list[str], int, int]:
    return _place(sample), _place(small), sample.size, threads


def _place(sample: Sample) -> list[str]:
    """Return path and dataset: all that a process has to know which is to import little."""
    location = sample.location
    return [location.path, location.dataset]


def reading(place: list[str], small: list[str], size: int, threads: int) -> Callable[[], None]:
    """Return what reads the octant, after a small one has been read."""
    set_threads(threads)
    for (path, dataset), extent in ((small, SMALL), (place, size)):
        reader = open_reader(Location(path, dataset))
        box = octant(extent, 0)
        out = np.full((1, *box.shape), 1, np.int16)
        reader.cost(box)
        if path == small[0]:
            reader.read_into(box, out)
            reader.close()
    return lambda: reader.read_into(box, out)


def traced(place: list[str], small: list[str], size: int, threads: int) -> Callable[[], int]:
    """Return what reads the octant and gives the peak of what was allocated."""
    read = reading(place, small, size, threads)
    tracemalloc.start()

    def peak() -> int:
        read()
        return tracemalloc.get_traced_memory()[1]

    return peak


def largest_chunk(sample: Sample) -> int:
    """Return the bytes of the largest chunk of a sample as stored."""
    steps = range(sample.size // 2, sample.size, CHUNK)
    boxes = (Box(start, tuple(i + CHUNK for i in start)) for start in product(steps, steps, steps))
    with closing(open_reader(sample.location)) as reader:
        return max(reader.cost(box).stored_bytes for box in boxes)


def rows(place: Path, size: int, threads: list[int], slack: int) -> list[Row]:
    """Measure all layouts; the samples are written into `place` where they are not there yet."""
    found = []
    for name in NAMES:
        big, small = counts(name, place, size, chunk=CHUNK), counts(name, place, SMALL, chunk=SMALL_CHUNK)
        unit = largest_chunk(big) + CHUNK**3 * 2
        for count in threads:
            figures = outside(big, small, count), inside(big, small, count)
            found.append(Row(name, count, *figures, bound=count * (unit + slack) + slack))
    return found


def main() -> int:
    """Parse the command line and run."""
    options = parser(__doc__, folder="samples", size=512)
    add = options.add_argument
    add("--threads", type=number, nargs="+", default=[1, 2, 8], help="numbers of threads (default 1 2 8)")
    add("--slack", type=int, default=256, help="KiB for other objects, once and for each thread (default 256)")
    words = options.parse_args()
    if words.size % (2 * CHUNK):
        options.error(
            f"--size {words.size}: expected a multiple of {2 * CHUNK}, for the octant is of whole chunks of {CHUNK}^3"
        )
    with folder(words.folder) as place:
        found = rows(place, words.size, words.threads, words.slack << 10)
    return finish(words, found, lambda row: row.is_within)


if __name__ == "__main__":
    sys.exit(main())
