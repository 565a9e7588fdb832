"""Claim: to learn whether a block was written anew takes a small part of the time that reading it takes.

A block of a thousand chunks, each a file of its own, is read, and its generation is taken: what a disk tier's names are
made of. The best of several rounds is printed in milliseconds, with a warm page cache; from a cold one reading takes
longer.

    python bench/generations.py [--rounds 7] [--json]
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import ZstdCodec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.script import finish, parser
from voxload.benchmark.measure.turns import timed
from voxload.geometry import Box
from voxload.readers import Location, open_reader
from voxload.readers.generation import block_generation

COUNT, WIDTH = 10, 32
"""Chunks along each axis, and voxels of a chunk."""


@dataclass(frozen=True, slots=True)
class Row:
    """One codec; of times the best."""

    codec: str
    read_ms: float
    generation_ms: float


def measure(path: Path, voxels: npt.NDArray[np.int16], codec: Any, rounds: int) -> Row:
    """Write a volume and time both."""
    zarr.create_array(path, data=voxels, chunks=(WIDTH,) * 3, compressors=codec, dimension_names=("d", "h", "w"))
    out, whole = np.empty((1, *voxels.shape), np.int16), Box.whole(voxels.shape)
    with closing(open_reader(Location(str(path)))) as reader:
        calls = {
            "read": lambda: reader.read_into(whole, out),
            "generation": lambda: block_generation(reader, whole, boundary="zero"),
        }
        turns = timed(calls, rounds)
    return Row(path.name, *(1e3 * min(turns.results[name]) for name in calls))


def main() -> int:
    """Print one line a codec."""
    words = parser(__doc__, rounds=7).parse_args()
    voxels = np.random.default_rng(0).integers(0, 900, (COUNT * WIDTH,) * 3).astype("<i2")
    codecs = {"none": None, "zstd": ZstdCodec()}
    with tempfile.TemporaryDirectory() as place:
        rows = [measure(Path(place) / name, voxels, codec, words.rounds) for name, codec in codecs.items()]
    print(f"{COUNT**3} chunks of {WIDTH}^3 voxels", file=sys.stderr)
    return finish(words, rows)


if __name__ == "__main__":
    sys.exit(main())
