"""A process that reads a whole data set on each line of its input, and says what the kernel counted.

``python -m bench.cooling.child plain|voxload HOG FILE...``: all that it needs is imported and allocated before the
first answer, so that none of it is counted, neither as reads nor as memory of a group that it is moved into. A line is
``read``, ``direct`` for a read past the page cache, or ``hold`` for holding HOG bytes from then on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from voxload.benchmark.cold.node_memory import HeldMemory
from voxload.benchmark.measure.kernel import KernelCounter
from voxload.geometry import Box
from voxload.readers import Location, open_reader, set_direct_reads

PIECE = 1 << 22
"""Bytes of one plain read."""


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


def main() -> None:
    """Answer until the input ends."""
    way, hog, files = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    read = {"plain": plain, "voxload": voxload}[way](files)
    read()  # kernels are compiled, threads started
    counter, held = KernelCounter(), HeldMemory(0)
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "hold":
            held = HeldMemory(hog)
            print(json.dumps({"is_locked": held.is_locked}), flush=True)
            continue
        set_direct_reads(is_direct=line.strip() == "direct")
        mark = counter.mark()
        asked = read()
        kernel = counter.since(mark)
        print(json.dumps({"asked": asked, "calls": kernel.asked, "device": kernel.device}), flush=True)
    held.close()


if __name__ == "__main__":
    main()
