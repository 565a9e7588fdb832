"""Claim: tiers give blocks at the speed of copying and summing them, and the codec makes room for several times more.

Stores and reads blocks of compressible counts (int16, as in a simulated universe) in every tier, with and without its
codec, and prints decoded bytes per second next to those of memcpy, measured in turn in the same run, with one thread
and with several; of all rounds the best, which is the one that others on the machine disturbed least. ``holds`` is how
many times more blocks the same capacity has room for. The disk tier's files are in the page cache when they are read:
its figures are what the tier costs, to which a device adds its own time.

    python bench/tiers.py [--size 128] [--blocks 4] [--threads 1 2] [--rounds 12] [--folder FOLDER] [--json]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.samples import Field, buffer_like, voxels
from bench.harness.script import finish, number, parser
from voxload.benchmark.measure.turns import seconds
from voxload.cache.codec import Codec
from voxload.cache.disk.tier import DiskTier
from voxload.cache.memory.attached import AttachedMemory
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.protocol import BlockKey, Tier
from voxload.geometry import Boundary, Box


@dataclass(frozen=True, slots=True)
class Row:
    """One tier's figures."""

    tier: str
    codec: str
    threads: int
    memcpy: float
    """GB/s of copying the same blocks into the same buffers, by as many threads, in the same minute."""
    put: float
    """Decoded GB/s."""
    get: float
    """Decoded GB/s."""
    holds: float
    """Bytes of blocks / bytes that they take in the tier."""

    @property
    def put_to_memcpy(self) -> float:
        """Storing, by copying."""
        return self.put / self.memcpy

    @property
    def get_to_memcpy(self) -> float:
        """Reading, by copying."""
        return self.get / self.memcpy


@dataclass(frozen=True, slots=True)
class Load:
    """What is stored and read."""

    blocks: Sequence[Field]
    buffers: Sequence[Field]
    threads: int

    @property
    def keys(self) -> list[BlockKey]:
        """The blocks' keys."""
        box = Box.whole(self.blocks[0].shape[1:])
        return [BlockKey("bench", str(number), "x", box, Boundary.ZERO) for number in range(len(self.blocks))]

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(block.nbytes for block in self.blocks)

    def rate(self, call: Callable[[int], object]) -> float:
        """Return GB/s of a call on the number of each block."""
        answers: list[object] = []
        with ThreadPoolExecutor(self.threads) as pool:
            spent = seconds(lambda: answers.extend(pool.map(call, range(len(self.blocks)))))
        if False in answers:
            raise SystemExit("a tier answered no")
        return self.nbytes / spent / 1e9


def measure(load: Load, make: Callable[[], Tier], name: str, codec: Codec, rounds: int) -> Iterator[Row]:
    """Yield the figures of a tier, and of a reader attached to it."""
    found: list[tuple[float, float, float, float]] = []
    with closing(make()) as tier:
        empty = tier.used
        with closing(AttachedMemory(tier.path)) if isinstance(tier, MemoryTier) else nullcontext() as attached:
            for _ in range(rounds):  # no turns: what is read has been stored in the same round
                copied = load.rate(lambda n: np.copyto(load.buffers[n], load.blocks[n]))
                put = load.rate(lambda n: tier.put(load.keys[n], load.blocks[n]))
                got = load.rate(lambda n: tier.get_into(load.keys[n], load.buffers[n]))
                near = load.rate(lambda n: attached.get_into(load.keys[n], load.buffers[n])) if attached else 0.0
                found.append((copied, put, got, near))
                _check(load)
                taken = tier.used - empty
                for key in load.keys:
                    tier.drop(key)
    memcpy, put, got, near = (max(column) for column in zip(*found, strict=True))
    yield Row(name, codec.value, load.threads, memcpy, put, got, load.nbytes / taken)
    if attached:
        yield Row("attached", codec.value, load.threads, memcpy, float("nan"), near, load.nbytes / taken)


def _check(load: Load) -> None:
    for block, buffer in zip(load.blocks, load.buffers, strict=True):
        if not np.array_equal(block, buffer):
            raise SystemExit("a tier gave wrong bytes")
        buffer[...] = 0


def main() -> int:
    """Parse the command line and run."""
    options = parser(__doc__, size=128, rounds=12)
    add = options.add_argument
    add("--blocks", type=number, default=4, help="how many blocks (default 4)")
    add("--threads", type=number, nargs="+", default=[1, 2], help="how many at once (default 1 2)")
    add("--folder", type=Path, help="where the disk tier is (default: a temporary folder)")
    words = options.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=words.folder) as temporary:
        folder = Path(temporary)
        box = Box.whole((words.size,) * 3)
        blocks = [voxels("int16", box, number=each) for each in range(words.blocks)]
        capacity = 2 * sum(block.nbytes for block in blocks) + 2**20
        for threads in words.threads:
            load = Load(blocks, [buffer_like(block) for block in blocks], threads)
            for codec in Codec:
                makes: dict[str, Callable[[], Tier]] = {
                    "memory": partial(MemoryTier, capacity, codec=codec, job="bench"),
                    "disk": partial(DiskTier, folder / "tier", capacity, codec=codec),
                }
                for name, make in makes.items():
                    rows += measure(load, make, name, codec, words.rounds)
    return finish(words, rows)


if __name__ == "__main__":
    sys.exit(main())
