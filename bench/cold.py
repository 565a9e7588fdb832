"""Claim: cold means cold: after each way of making a data set cold, the device gives the bytes that are read, to 2 %.

A data set of uncompressed volumes is read whole, by plain read calls and by voxload's reader, in a process of its own:

- `warm`, from memory, to see that the counter can tell (asked: none from the device);
- after each rung of `voxload.benchmark.cold.coldness`: `fadvise`, `drop_caches` where permitted, and `direct` reads,
  for which pages that are in memory do not matter;
- `4x group`: again and again in a memory cgroup that may have a quarter of the data set, where nothing is dropped;
- `no hog`, `hog`: the same in a group that can hold the data set, and then cannot for memory that is locked in it
  (asked of the former: none from the device).

Printed are bytes asked, bytes from the device (read_bytes of /proc/PID/io), their ratio, and what make_cold said. What
this machine does not permit is said and left out. The exit status is 1 when a ratio is off by more than --margin.

    python bench/cold.py [--folder DATA] [--volumes 8] [--size 256] [--margin 0.02] [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.arguments import folder, number
from bench.cooling.group import MemoryGroup
from voxload.benchmark.cold.coldness import make_cold, may_drop
from voxload.benchmark.cold.datafiles import DataFiles
from voxload.benchmark.cold.pagecache import evict, file_system
from voxload.benchmark.workload.workload import RUN, Coldness
from voxload.readers import set_direct_reads
from voxload.units import format_bytes

ROOT = Path(__file__).resolve().parents[1]
WAYS = ("plain", "voxload")
FROM_MEMORY = ("warm", "no hog")
"""Rungs that are none: what they read is in memory."""
PASSES = 2
"""Times that a data set is read in a group without anything being dropped; the last one counts."""


@dataclass(frozen=True, slots=True)
class Row:
    """One read of the whole data set."""

    rung: str
    way: str
    """``plain`` or ``voxload``."""
    asked: int
    """Bytes wanted."""
    device: int
    """Bytes that the device gave."""
    text: str
    """What is known of the page cache before."""

    @property
    def ratio(self) -> float:
        """Bytes from the device for each that was asked."""
        return self.device / self.asked

    def is_off(self, margin: float) -> bool:
        """Tell whether the ratio is not what it should be."""
        return abs(self.ratio - (self.rung not in FROM_MEMORY)) > margin


class Child:
    """A process that reads the data set on command."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.answer()

    def ask(self, word: str) -> dict[str, Any]:
        """Send a command and return its answer."""
        assert self._process.stdin is not None  # noqa: S101 - it was opened with a pipe
        print(word, file=self._process.stdin, flush=True)
        return dict(json.loads(self.answer()))

    def answer(self) -> str:
        """Return the next line."""
        assert self._process.stdout is not None  # noqa: S101 - as above
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"the reading process has ended: {self._process.wait()}")
        return line


@contextmanager
def child(way: str, data: DataFiles, *, hog: int = 0) -> Iterator[Child]:
    """Start a reading process; it ends with its input."""
    command = [sys.executable, "-m", "bench.cooling.child", way, str(hog), *data.files]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Child(process)
        process.communicate()


def write(place: Path, volumes: int, size: int) -> DataFiles:
    """Write volumes of random counts, if they are not there, and return their files."""
    source = np.random.default_rng(0)
    paths = [place / f"cold-{size}-{index}.npy" for index in range(volumes)]
    for path in paths:
        if not path.exists():
            np.save(path, source.integers(0, 2**15, (size, size, size), np.int16))
    return DataFiles(tuple(str(path) for path in paths))


def ladder(data: DataFiles, way: str) -> Iterator[Row]:
    """Read warm and after each rung."""
    with child(way, data) as reader:
        yield _row("warm", way, reader.ask("read"), "read before")
        for rung in ("fadvise", "drop_caches") if may_drop() else ("fadvise",):
            cold = make_cold(data, Coldness(RUN, rung))
            yield _row(rung, way, reader.ask("read"), cold.text)
        if way == "voxload":
            set_direct_reads(is_direct=True)
            make_cold(data, Coldness(RUN, "direct"))  # sees that the file system can
            set_direct_reads(is_direct=False)
            reader.ask("read")
            yield _row("direct", way, reader.ask("direct"), "in memory, and passed by")


def limited(data: DataFiles, way: str) -> Iterator[Row]:
    """Read again and again in a group whose page cache holds a quarter of the data set."""
    cache = data.nbytes // 4
    with MemoryGroup(cache) as group, child(way, data) as reader:
        group.add(reader.pid)
        evict(data.files)  # pages that are there already belong to others, and are free
        yield _again("4x group", way, reader, f"{format_bytes(cache)} of page cache")


def hogged(data: DataFiles, way: str) -> Iterator[Row]:
    """Read where the group is larger than the data set, before and after memory is held in it."""
    cache, hog = data.nbytes // 4, data.nbytes
    with MemoryGroup(cache + hog) as group, child(way, data, hog=hog) as reader:
        group.add(reader.pid)
        evict(data.files)
        yield _again("no hog", way, reader, f"{format_bytes(cache + hog)} of page cache")
        state = "locked" if reader.ask("hold")["is_locked"] else "touched"
        evict(data.files)  # of what was used twice, the system keeps some even when memory is short
        yield _again("hog", way, reader, f"{format_bytes(hog)} of that {state}")


def _again(rung: str, way: str, reader: Child, text: str) -> Row:
    found = [reader.ask("read") for _ in range(PASSES)]
    return _row(rung, way, found[-1], f"{text}, pass {PASSES} without dropping")


def _row(rung: str, way: str, found: dict[str, Any], text: str) -> Row:
    return Row(rung, way, found["asked"], found["device"], text)


def measure(data: DataFiles) -> list[Row]:
    """Measure all that this machine permits."""
    rows = [row for way in WAYS for row in ladder(data, way)]
    try:
        for study in (limited, hogged):
            rows += [row for way in WAYS for row in study(data, way)]
    except OSError as error:
        print(f"4x group, hog: not measured, no memory cgroup can be made: {error}", file=sys.stderr)
    if not may_drop():
        print("drop_caches: not measured, not permitted", file=sys.stderr)
    return rows


def show(rows: Sequence[Row], margin: float) -> None:
    """Print the table."""
    print(f"{'rung':<12} {'read by':<8} {'asked':>13} {'device':>13} {'ratio':>7}")
    for row in rows:
        verdict = "OFF " if row.is_off(margin) else ""
        print(f"{row.rung:<12} {row.way:<8} {row.asked:>13,} {row.device:>13,} {row.ratio:>7.4f}  {verdict}{row.text}")


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where volumes are kept (default: a temporary folder)")
    parser.add_argument("--volumes", type=number, default=8, help="how many (default 8)")
    parser.add_argument("--size", type=number, default=256, help="voxels of each along each axis (default 256)")
    parser.add_argument("--margin", type=float, default=0.02, help="how far off a ratio may be (default 0.02)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    words = parser.parse_args()
    with folder(words.folder) as place:
        if file_system(place) in ("tmpfs", "ramfs"):
            parser.error(f"{place} lives in memory: say --folder on a device")
        rows = measure(write(place, words.volumes, words.size))
    if words.json:
        print(json.dumps([asdict(row) | {"ratio": row.ratio} for row in rows], indent=1))
    else:
        show(rows, words.margin)
    return int(any(row.is_off(words.margin) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
