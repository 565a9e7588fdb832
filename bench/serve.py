"""Claim: jobs that share a node's service read a data set once, and a set that does not fit hardly more than they must.

Four jobs, processes of their own, train on the same samples in orders of their own. They have:

- `service`: one service with all the room (`Cache(service=...)`);
- `service and disk`: the same, and a disk that has room for the set;
- `apart`: a clairvoyant cache of a quarter of the room each;
- `none`: no cache;
- `each`: a clairvoyant cache of all the room each, four times as much memory;
- `alone`: one job by itself, with a clairvoyant cache of all the room.

The room is that of the whole set, and of half of it. Storage bytes are in sets: 1 is every sample read once. The
optimum is what one cache of that room reads at least that knows all that the four use, in the order in which they used
it (Belady's MIN with bypass); `alone` and `apart` have none. A stall is what the slowest job waited, over all epochs.
Wanted: with a service, one set where it fits or the disk has it, else at most 1.15 of the optimum and less than
`apart`; a stall that is no longer than that of `alone` with room for the set.

`hit`: a block of a sample out of the service's memory as a loader fetches it, against the same out of a tier that
another process has (`AttachedMemory`), and a memcpy; medians of --rounds, in turns. Wanted: 1.3 of the tier's.

In their first epoch four jobs ask for up to four times as much as one: with steps so short that the cores cannot decode
that (--step 20), or the storage cannot give it, each waits for what all of them read, and no order of reads helps.

    python bench/serve.py [--folder DATA] [--size 64] [--samples 160] [--epochs 3] [--step 100] [--rounds 200] [--json]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import h5py
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import voxload
from bench.harness.script import finish, folder, number, parser
from voxload.benchmark.cold.pagecache import warm
from voxload.cache.disk.tier import DiskTier
from voxload.cache.memory.attached import AttachedMemory
from voxload.cache.memory.tier import MemoryTier
from voxload.data.units.keyed import KeyedUnits
from voxload.errors import InternalError
from voxload.loader.caching.served import FieldUnits
from voxload.loader.caching.units import SampleUnits
from voxload.prefetch.simulation.optimum import reads_of_optimum
from voxload.serve.asking import figures
from voxload.serve.client import ServiceClient
from voxload.serve.keeping.storedblocks import StoredBlocks
from voxload.serve.protocol.blocktable import line

JOBS, CHANNELS, BATCH = 4, 4, 2
OPTIMUM, HIT = 1.15, 1.3
PROGRAM = "from voxload.cli.start import main; main()"


@dataclass(frozen=True, slots=True)
class Row:
    """What one way took."""

    way: str
    room_sets: float
    """Room for all jobs together."""
    storage_sets: float
    """Read from the storage."""
    optimum_sets: float | None
    to_optimum: float | None
    stall_s: float
    """Of the job that waited longest, over all epochs."""
    seconds: float
    """Until the last job had ended."""
    service_cpu_s: float | None
    """From when it was ready until the jobs had ended."""
    is_good: bool = True


@dataclass(frozen=True, slots=True)
class Hit:
    """What a block out of memory costs."""

    way: str
    microseconds: float
    """Median."""
    gigabytes_per_second: float
    to_tier: float
    is_good: bool


@dataclass(frozen=True, slots=True)
class Set:
    """The samples, and what is done with them."""

    data: Path
    count: int
    block: int
    """Bytes of a sample."""
    epochs: int
    step: float
    """Seconds that a job computes on a batch."""

    @property
    def stored(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self.data.glob("*.h5"))


def write(data: Path, count: int, size: int) -> None:
    """Write samples of counts in compressed chunks, where they are not there."""
    drawn = np.random.default_rng(0)
    for sample in range(count):
        path = data / f"{sample:04}.h5"
        if not path.exists():
            with h5py.File(path, "w") as file:
                voxels = drawn.poisson(3.0, (CHANNELS, size, size, size)).astype(np.int16)
                file.create_dataset("x", data=voxels, chunks=(1, size // 2, size // 2, size // 2), compression="gzip")
    warm(data.glob("*.h5"))


def dataset(data: Path) -> voxload.VolumeDataset:
    """Return the samples as a data set."""
    return voxload.VolumeDataset(str(data / "*.h5"), fields={"x": "x"}, axes="CDHW")


def job(words: dict[str, Any]) -> None:
    """Train for some epochs, and print what was used when, and how long this waited; runs in a process of its own."""
    cache = voxload.Cache(**words["cache"]) if words["cache"] else None
    samples = dataset(Path(words["data"]))
    shuffled = torch.Generator().manual_seed(words["seed"])
    sampler = torch.utils.data.RandomSampler(samples, generator=shuffled)
    drawn = torch.Generator().manual_seed(words["seed"])
    loader = voxload.DataLoader(samples, batch_size=BATCH, sampler=sampler, num_workers=2, cache=cache)
    print("ready", flush=True)
    sys.stdin.readline()
    uses: list[tuple[float, int]] = []
    for _ in range(words["epochs"]):
        order = iter(torch.utils.data.RandomSampler(samples, generator=drawn))
        for batch in loader:
            tensor = batch if isinstance(batch, torch.Tensor) else next(iter(batch))
            now = time.monotonic()
            uses.extend((now, next(order)) for _ in range(len(tensor)))
            time.sleep(words["step"])
    found = loader.stats()
    loader.close()
    print(json.dumps({"uses": uses, "stall": found.seconds_stalled, "bytes": found.bytes_read}), flush=True)


def jobs(samples: Set, caches: Sequence[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Run jobs side by side; return what each printed."""
    common = {"data": str(samples.data), "epochs": samples.epochs, "step": samples.step}
    with ExitStack() as stack:
        children = []
        for seed, cache in enumerate(caches):
            words = json.dumps({**common, "cache": cache, "seed": seed})
            command = [sys.executable, __file__, "--job", words]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(child.kill)
            children.append(child)
        for child in children:
            _said(child.stdout, "ready")
        for child in children:
            if child.stdin is not None:
                child.stdin.write("go\n")
                child.stdin.flush()
        return [json.loads(child.communicate()[0]) for child in children]


def _said(stream: IO[str] | None, word: str) -> None:
    line = stream.readline() if stream is not None else ""
    if word not in line:
        raise InternalError("child", found=repr(line), expected=word)


@contextmanager
def service(path: Path, memory: int, *, disk: int = 0) -> Iterator[subprocess.Popen[str]]:
    """Give a service to a block of code."""
    options = ["--disk", str(path.parent / "disk"), "--disk-size", str(disk)] if disk else []
    command = [sys.executable, "-c", PROGRAM, "serve", "--memory", str(memory), "--socket", str(path), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]) as process:
        try:
            _said(process.stderr, "serving")
            yield process
        finally:
            process.terminate()


def capacity(blocks: int, nbytes: int) -> int:
    """Return the bytes of a memory tier with room for so many blocks, its table included."""
    room = blocks * MemoryTier.footprint(nbytes)
    return room + room // 1000 + 2**14


def cpu(pid: int) -> float:
    """Return the seconds of all cores that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def served(samples: Set, blocks: int, *, disk: int = 0) -> Row:
    """Return what four jobs take that share a service with room for so many blocks, in memory and on disk."""
    begin = time.monotonic()
    with TemporaryDirectory(prefix="voxload-bench-") as folder:
        path = Path(folder) / "socket"
        nbytes = 2 * disk * DiskTier.footprint(samples.block)
        with service(path, capacity(blocks, samples.block), disk=nbytes) as process:
            ready = cpu(process.pid)
            found = jobs(samples, [{"service": str(path)}] * JOBS)
            read, used = figures(path)["reads"]["storage_bytes"], cpu(process.pid) - ready
    seconds = time.monotonic() - begin
    merged = sorted(tuple(use) for one in found for use in one["uses"])
    accesses = np.array([sample for _, sample in merged], np.int64)
    optimum = int(reads_of_optimum(accesses, max(blocks, disk)).sum()) / samples.count
    ours = (read + sum(one["bytes"] for one in found)) / samples.stored
    stall = max(one["stall"] for one in found)
    is_good = ours <= (OPTIMUM if blocks < samples.count and not disk else 1.001) * optimum
    way = "service and disk" if disk else "service"
    return Row(way, blocks / samples.count, ours, optimum, ours / optimum, stall, seconds, used, is_good=is_good)


def unserved(samples: Set, way: str, blocks: int, caches: Sequence[dict[str, Any] | None]) -> Row:
    """Return what jobs take that share nothing."""
    begin = time.monotonic()
    found = jobs(samples, caches)
    seconds, stall = time.monotonic() - begin, max(one["stall"] for one in found)
    read = sum(one["bytes"] for one in found) / samples.stored
    return Row(way, blocks / samples.count, read, None, None, stall, seconds, None)


def shared(samples: Set) -> list[Row]:
    """Return what each way takes, with room for the set and for half of it."""
    every, half = samples.count, samples.count // 2
    alone = unserved(samples, "alone", every, [{"memory": capacity(every, samples.block)}])
    rows = [alone, unserved(samples, "each", JOBS * every, [{"memory": capacity(every, samples.block)}] * JOBS)]
    for blocks in (every, half):
        apart = [{"memory": capacity(blocks // JOBS, samples.block)}] * JOBS
        rows.append(unserved(samples, "apart", blocks, apart))
        ours = served(samples, blocks)
        is_good = ours.is_good and ours.storage_sets < rows[-1].storage_sets
        is_good &= blocks < every or ours.stall_s <= alone.stall_s
        rows.append(replace(ours, is_good=is_good))
    rows.append(served(samples, half, disk=every))
    rows.append(unserved(samples, "none", 0, [None] * JOBS))
    return rows


def hits(data: Path, *, rounds: int, block: int) -> Iterator[Hit]:
    """Yield what a block costs that is in memory, by each way to it."""
    samples = dataset(data)
    units = FieldUnits(SampleUnits(samples, samples.layout(0)))
    key = KeyedUnits(units, outlives=True).keys(0)[0]
    out = np.empty(samples.layout(0)[0].shape, np.int16)
    source = out.copy()
    with ExitStack() as stack:
        path = Path(stack.enter_context(TemporaryDirectory(prefix="voxload-bench-"))) / "socket"
        stack.enter_context(service(path, capacity(4, block)))
        tier = stack.enter_context(closing(MemoryTier(capacity(4, block))))
        stored = StoredBlocks(lambda _number: line(units.block(0)))
        stored.read(0, out)
        tier.put(key, out)
        stored.close()
        near = stack.enter_context(closing(AttachedMemory(tier.path)))
        client = stack.enter_context(closing(ServiceClient(path, units.block)))
        client.foresee(0, np.zeros(1, np.int64))
        if not client.fetch(0, key, out):
            raise InternalError("service", found="no block", expected="the one that it was told of")
        ways: dict[str, Callable[[], Any]] = {
            "tier": lambda: near.get_into(key, out),
            "service": lambda: client.fetch(0, key, out),
            "memcpy": lambda: np.copyto(out, source),
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, act in ways.items():
                begin = time.perf_counter()
                act()
                times[way].append(time.perf_counter() - begin)
    medians = {way: statistics.median(found) for way, found in times.items()}
    for way, median in medians.items():
        ratio = median / medians["tier"]
        yield Hit(way, 1e6 * median, block / median / 1e9, ratio, is_good=way != "service" or ratio <= HIT)


def main(arguments: Sequence[str]) -> int:
    """Print both tables, or all rows."""
    if list(arguments[:1]) == ["--job"]:
        job(json.loads(arguments[1]))
        return 0
    words = parser(__doc__, folder="samples", size=64, rounds=200)
    words.add_argument("--samples", type=number, default=160, help="samples of the set (default 160)")
    words.add_argument("--epochs", type=number, default=3, help="epochs of each job (default 3)")
    words.add_argument("--step", type=number, default=100, help="milliseconds computed on a batch (default 100)")
    chosen = words.parse_args(arguments)
    block = CHANNELS * chosen.size**3 * 2
    with folder(chosen.folder) as data:
        write(data, chosen.samples, chosen.size)
        rows = shared(Set(data, chosen.samples, block, chosen.epochs, chosen.step / 1000))
        found = list(hits(data, rounds=chosen.rounds, block=block))
    both: list[Row | Hit] = [*rows, *found]
    return finish(chosen, both, lambda row: row.is_good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
