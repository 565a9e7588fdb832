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

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.children import Child, started
from bench.harness.script import finish, folder, number, parser
from voxload.benchmark.cold.coldness import make_cold, may_drop
from voxload.benchmark.cold.datafiles import DataFiles
from voxload.benchmark.cold.node_memory import HeldMemory
from voxload.benchmark.cold.pagecache import evict, file_system
from voxload.benchmark.measure.kernel import KernelCounter
from voxload.benchmark.workload.workload import RUN, Coldness
from voxload.geometry import Box
from voxload.readers import Location, open_reader, set_direct_reads
from voxload.units import format_bytes

READING = "bench.cold:reading"
WAYS = ("plain", "voxload")
FROM_MEMORY = ("warm", "no hog")
"""Rungs that are none: what they read is in memory."""
LEAST = 1 << 28
"""Bytes of a data set of which a quarter, in a group, has room for what is read ahead: with less, bytes that nobody has
used yet are dropped and come twice, and in the end a process does not fit."""
PIECE = 1 << 22
"""Bytes of one plain read."""
_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
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

    def keeps(self, margin: float) -> bool:
        """Tell whether the ratio is what it should be."""
        return abs(self.ratio - (self.rung not in FROM_MEMORY)) <= margin


@contextmanager
def limited(limit: int) -> Iterator[Path]:
    """Yield the file by which a process joins a memory cgroup that may hold `limit` bytes, pages of files included.

    Processes must have ended before the block does. Raises OSError when this machine does not permit it: it takes
    root, and a hierarchy that is mounted to be written to.
    """
    is_first = (_V1 / "memory.limit_in_bytes").exists()
    if not is_first:
        (_V2 / "cgroup.subtree_control").write_text("+memory")
    group = (_V1 if is_first else _V2) / f"voxload-cold-{os.getpid()}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(limit))
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def reading(way: str, hog: int, files: Sequence[str]) -> Callable[[str], dict[str, int | bool]]:
    """Return what reads a whole data set on command, in a process of its own, and says what the kernel counted.

    A word is ``read``, ``direct`` for a read past the page cache, or ``hold`` for holding `hog` bytes from then on. All
    that is needed is imported and allocated before the first answer, so that none of it is counted, neither as reads
    nor as memory of a group that the process is moved into.
    """
    read = {"plain": plain, "voxload": voxload}[way](files)
    read()  # kernels are compiled, threads started
    counter, held = KernelCounter(), [HeldMemory(0)]

    def answer(word: str) -> dict[str, int | bool]:
        if word == "hold":
            held.append(HeldMemory(hog))
            return {"is_locked": held[-1].is_locked}
        set_direct_reads(is_direct=word == "direct")
        mark = counter.mark()
        return {"asked": read(), "device": counter.since(mark).device}

    return answer


def plain(files: Sequence[str]) -> Callable[[], int]:
    """Return what reads all bytes of all files with read calls; it returns how many."""
    buffer = np.zeros(PIECE, np.uint8)

    def read() -> int:
        total = 0
        for path in files:
            with Path(path).open("rb", buffering=0) as file:
                while count := file.readinto(buffer.data):
                    total += count
        return total

    return read


def voxload(files: Sequence[str]) -> Callable[[], int]:
    """Return what reads all voxels of all volumes with voxload's reader; it returns their bytes."""
    shape = np.load(files[0], mmap_mode="r").shape
    out = np.zeros((1, *shape), np.int16)

    def read() -> int:
        for path in files:
            reader = open_reader(Location(path, axes="DHW"))
            reader.read_into(Box((0, 0, 0), shape), out)
            reader.close()
        return len(files) * out.nbytes

    return read


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
    with started(READING, way, 0, data.files) as reader:
        yield _row("warm", way, reader, "read before")
        for rung in ("fadvise", "drop_caches") if may_drop() else ("fadvise",):
            cold = make_cold(data, Coldness(RUN, rung))
            yield _row(rung, way, reader, cold.text)
        if way == "voxload":
            set_direct_reads(is_direct=True)
            make_cold(data, Coldness(RUN, "direct"))  # sees that the file system can
            set_direct_reads(is_direct=False)
            reader.ask("read")
            yield _row("direct", way, reader, "in memory, and passed by", word="direct")


def quartered(data: DataFiles, way: str) -> Iterator[Row]:
    """Read again and again in a group whose page cache holds a quarter of the data set."""
    cache = data.nbytes // 4
    with limited(cache) as group, started(READING, way, 0, data.files) as reader:
        group.write_text(str(reader.pid))
        evict(data.files)  # pages that are there already belong to others, and are free
        yield _again("4x group", way, reader, f"{format_bytes(cache)} of page cache")


def hogged(data: DataFiles, way: str) -> Iterator[Row]:
    """Read where the group is larger than the data set, before and after memory is held in it."""
    cache, hog = data.nbytes // 4, data.nbytes
    with limited(cache + hog) as group, started(READING, way, hog, data.files) as reader:
        group.write_text(str(reader.pid))
        evict(data.files)
        yield _again("no hog", way, reader, f"{format_bytes(cache + hog)} of page cache")
        state = "locked" if reader.ask("hold")["is_locked"] else "touched"
        evict(data.files)  # of what was used twice, the system keeps some even when memory is short
        yield _again("hog", way, reader, f"{format_bytes(hog)} of that {state}")


def _again(rung: str, way: str, reader: Child, text: str) -> Row:
    for _ in range(PASSES - 1):
        reader.ask("read")
    return _row(rung, way, reader, f"{text}, pass {PASSES} without dropping")


def _row(rung: str, way: str, reader: Child, text: str, *, word: str = "read") -> Row:
    return Row(rung, way, **reader.ask(word), text=text)


def measure(data: DataFiles) -> list[Row]:
    """Measure all that this machine permits."""
    rows = [row for way in WAYS for row in ladder(data, way)]
    try:
        for study in (quartered, hogged):
            rows += [row for way in WAYS for row in study(data, way)]
    except OSError as error:
        print(f"4x group, hog: not measured, no memory cgroup can be made: {error}", file=sys.stderr)
    if not may_drop():
        print("drop_caches: not measured, not permitted", file=sys.stderr)
    return rows


def main() -> int:
    """Parse the command line and run."""
    options = parser(__doc__, folder="volumes", size=256)
    options.add_argument("--volumes", type=number, default=8, help="how many (default 8)")
    options.add_argument("--margin", type=float, default=0.02, help="how far off a ratio may be (default 0.02)")
    words = options.parse_args()
    asked = words.volumes * words.size**3 * np.dtype(np.int16).itemsize
    if asked < LEAST:
        options.error(
            f"--volumes {words.volumes} --size {words.size}: found {format_bytes(asked)} in all, expected "
            f"{format_bytes(LEAST)} or more, such as --volumes 8 --size 256; choose more volumes or larger ones"
        )
    with folder(words.folder) as place:
        if file_system(place) in ("tmpfs", "ramfs"):
            options.error(f"{place} lives in memory: say --folder on a device")
        rows = measure(write(place.resolve(), words.volumes, words.size))
    return finish(words, rows, lambda row: row.keeps(words.margin))


if __name__ == "__main__":
    sys.exit(main())
