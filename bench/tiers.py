"""Claim: tiers give blocks at the speed of copying and summing them, and the codec makes room for several times more.

Stores and reads blocks of compressible counts (int16, as in a simulated universe) in every tier, with and without its
codec, and prints decoded bytes per second next to those of memcpy, measured in turn in the same run, with one thread
and with several; of all rounds the best, which is the one that others on the machine disturbed least. ``holds`` is how
many times more blocks the same capacity has room for. The disk tier's files are in the page cache when they are read:
its figures are what the tier costs, to which a device adds its own time.

    python bench/tiers.py [--size 128] [--blocks 4] [--threads 1 2] [--folder FOLDER] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.reading.fields import Field, buffer_like, load_field
from voxload.cache.codec import Codec
from voxload.cache.disk.tier import DiskTier
from voxload.cache.memory.attached import AttachedMemory
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.protocol import BlockKey, Tier
from voxload.geometry import Boundary, Box

ROUNDS = 12
_WIDTHS = (8, 8, 7, 7, 12, 12, 7)


@dataclass(frozen=True, slots=True)
class Row:
    """One tier's figures."""

    tier: str
    codec: str
    threads: int
    put: float
    """Decoded GB/s."""
    get: float
    """Decoded GB/s."""
    memcpy: float
    """GB/s of copying the same blocks into the same buffers, by as many threads, in the same minute."""
    holds: float
    """Bytes of blocks / bytes that they take in the tier."""


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
        with ThreadPoolExecutor(self.threads) as pool:
            start = time.perf_counter()
            answers = list(pool.map(call, range(len(self.blocks))))
            seconds = time.perf_counter() - start
        if False in answers:
            raise SystemExit("a tier answered no")
        return self.nbytes / seconds / 1e9


def measure(load: Load, make: Callable[[], Tier], name: str, codec: Codec) -> Iterator[Row]:
    """Yield the figures of a tier, and of a reader attached to it."""
    with closing(make()) as tier:
        rounds: list[tuple[float, float, float, float]] = []
        empty = tier.used
        with _attached(tier) as attached:
            for _ in range(ROUNDS):
                copied = load.rate(lambda n: np.copyto(load.buffers[n], load.blocks[n]))
                put = load.rate(lambda n: tier.put(load.keys[n], load.blocks[n]))
                got = load.rate(lambda n: tier.get_into(load.keys[n], load.buffers[n]))
                near = load.rate(lambda n: attached.get_into(load.keys[n], load.buffers[n])) if attached else 0.0
                rounds.append((copied, put, got, near))
                _check(load)
                taken = tier.used - empty
                for key in load.keys:
                    tier.drop(key)
    memcpy, put, got, near = (max(column) for column in zip(*rounds, strict=True))
    yield Row(name, codec.value, load.threads, put, got, memcpy, load.nbytes / taken)
    if attached:
        yield Row("attached", codec.value, load.threads, float("nan"), near, memcpy, load.nbytes / taken)


@contextmanager
def _attached(tier: Tier) -> Iterator[AttachedMemory | None]:
    if not isinstance(tier, MemoryTier):
        yield None
        return
    with closing(AttachedMemory(tier.path)) as reader:
        yield reader


def _check(load: Load) -> None:
    for block, buffer in zip(load.blocks, load.buffers, strict=True):
        if not np.array_equal(block, buffer):
            raise SystemExit("a tier gave wrong bytes")
        buffer[...] = 0


def show(rows: Sequence[Row]) -> None:
    """Print the table."""
    words = ("threads", "memcpy", "put", "get", "put/memcpy", "get/memcpy", "holds")
    print(f"{'tier':<9}{'codec':<15}" + "".join(f"{word:>{width}}" for word, width in zip(words, _WIDTHS, strict=True)))
    for row in rows:
        name = f"{row.tier:<9}{row.codec:<15}{row.threads:>8}"
        ratios = f"{row.put / row.memcpy:>12.2f}{row.get / row.memcpy:>12.2f}"
        print(f"{name}{row.memcpy:>8.2f}{row.put:>7.2f}{row.get:>7.2f}{ratios}{row.holds:>7.2f}")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=128, help="voxels of a block along each axis (default 128)")
    parser.add_argument("--blocks", type=int, default=4, help="how many blocks (default 4)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="how many at once (default 1 2)")
    parser.add_argument("--folder", type=Path, help="where the disk tier is (default: a temporary folder)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    words = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=words.folder) as temporary:
        folder = Path(temporary)
        _, field = load_field(folder, "int16", words.size)
        # Rolled copies: as many different blocks, all of one and the same compressibility.
        blocks = [np.roll(field, number, axis=0)[np.newaxis].copy() for number in range(words.blocks)]
        capacity = 2 * sum(block.nbytes for block in blocks) + 2**20
        for threads in words.threads:
            load = Load(blocks, [buffer_like(block) for block in blocks], threads)
            for codec in Codec:
                rows += measure(load, lambda c=codec: MemoryTier(capacity, codec=c, job="bench"), "memory", codec)  # type: ignore[misc]
                rows += measure(load, lambda c=codec: DiskTier(folder / "tier", capacity, codec=c), "disk", codec)  # type: ignore[misc]
    if words.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        show(rows)


if __name__ == "__main__":
    main()
