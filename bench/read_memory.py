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

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import IO

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.reading.cases import octant
from bench.reading.fields import load_field
from bench.reading.samples import LAYOUTS, Sample, store
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


def anonymous(pid: int) -> int:
    """Return the anonymous memory of a process in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"no RssAnon of process {pid}")


def measure(sample: Sample, small: Sample, threads: int, *, is_traced: bool) -> int:
    """Return what one read allocates, as seen from outside or, traced, from inside."""
    command = [sys.executable, __file__, "--child", str(sample.path), str(small.path), "--threads", str(threads)]
    command += ["--size", str(sample.size), *(["--traced"] if is_traced else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as child:
        if child.stdin is None or child.stdout is None:
            raise SystemExit("no pipes to the child")
        _expect(child.stdout, "ready")
        before = most = anonymous(child.pid)
        print("read", file=child.stdin, flush=True)
        # The child waits after its read, so there is always a process to ask.
        while not (Path(f"{sample.path}.{child.pid}")).exists():
            most = max(most, anonymous(child.pid))
        most = max(most, anonymous(child.pid))
        print("end", file=child.stdin, flush=True)
        peak = int(child.stdout.readline())
    return peak if is_traced else most - before


def _expect(stream: IO[str], word: str) -> None:
    line = stream.readline().strip()
    if line != word:
        raise SystemExit(f"the child said {line!r} and not {word!r}")


def child(path: str, small: str, threads: int, *, size: int, is_traced: bool) -> None:
    """Read the octant on command; a file beside the sample tells that it is done."""
    set_threads(threads)
    for place, extent in ((small, SMALL), (path, size)):
        reader = open_reader(Location(place, "x" if ".hdf5" in place else ""))
        box = octant(extent, 0)
        out = np.full((1, *box.shape), 1, np.int16)
        reader.cost(box)
        if place == small:
            reader.read_into(box, out)
            reader.close()
    if is_traced:
        tracemalloc.start()
    print("ready", flush=True)
    sys.stdin.readline()
    reader.read_into(box, out)
    peak = tracemalloc.get_traced_memory()[1] if is_traced else 0
    done = Path(f"{path}.{os.getpid()}")
    done.touch()
    sys.stdin.readline()
    done.unlink()
    print(peak, flush=True)
    reader.close()


def largest_chunk(sample: Sample) -> int:
    """Return the bytes of the largest chunk of a sample as stored."""
    reader = open_reader(Location(str(sample.path), "x" if sample.path.is_file() else ""))
    steps = range(sample.size // 2, sample.size, CHUNK)
    boxes = (Box(start, tuple(i + CHUNK for i in start)) for start in product(steps, steps, steps))
    most = max(reader.cost(box).stored_bytes for box in boxes)
    reader.close()
    return most


def rows(folder: Path, size: int, threads: list[int], slack: int) -> list[Row]:
    """Measure all layouts; the samples are written into `folder` where they are not there yet."""
    found = []
    for name in NAMES:
        big, small = (
            store(LAYOUTS[name], load_field(folder, "int16", extent), chunk=chunk)
            for extent, chunk in ((size, CHUNK), (SMALL, SMALL_CHUNK))
        )
        unit = largest_chunk(big) + CHUNK**3 * 2
        for count in threads:
            outside, inside = (measure(big, small, count, is_traced=traced) for traced in (False, True))
            found.append(Row(name, count, outside, inside, count * (unit + slack) + slack))
    return found


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where samples are kept (default: a temporary folder)")
    parser.add_argument("--size", type=int, default=512, help="voxels along each axis (default 512)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 8], help="numbers of threads (default 1 2 8)")
    parser.add_argument("--slack", type=int, default=256, help="KiB for other objects, once and for each thread")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--traced", action="store_true", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.child:
        child(words.child[0], words.child[1], words.threads[0], size=words.size, is_traced=words.traced)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = words.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        found = rows(folder, words.size, words.threads, words.slack << 10)
    if words.json:
        print(json.dumps([asdict(row) | {"is_within": row.is_within} for row in found], indent=1))
    else:
        print(f"{'layout':<18} threads {'anonymous KiB':>14} {'Python KiB':>12} {'bound KiB':>12}")
        for row in found:
            figures = " ".join(f"{n >> 10:>12,}" for n in (row.anonymous, row.python, row.bound))
            print(f"{row.layout:<18} {row.threads:>7}   {figures}{'' if row.is_within else '   ABOVE'}")
    return int(not all(row.is_within for row in found))


if __name__ == "__main__":
    sys.exit(main())
