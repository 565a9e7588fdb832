"""Copying: how fast universes convert, against a program that compresses the same bytes without rearranging them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.converting.samples import make_cubes
from bench.converting.turn import Contender, Task, Turn, document, in_rounds, seconds, size_of
from bench.harness.findings import Outcome, Sheet, at_least, at_most
from voxload.benchmark.measure.turns import Turns
from voxload.units import format_bytes

SPEED = 0.6
MEMORY = 2**30
_OWN, _PEER = "voxload convert", "copy and compress"
_ALLOWED = 64 * 2**20
"""Bytes read beside the source: the boxes that are tried, of which HDF5 reads 64 KiB for a row, and Python modules."""
_COLUMNS = (
    "contender",
    "seconds",
    "on cores",
    "MB/s",
    "voxload\nfaster",
    "peak\nmemory",
    "read",
    "written",
    "from\ndevice",
    "to\ndevice",
    "stored",
)


def copying(folder: Path, task: Task) -> Outcome:
    """Measure, and compare with the claim."""
    source = make_cubes(folder, task.cubes, task.extent)
    contenders = (
        Contender(_OWN, "converting", ("zarr", "", task.compression, str(MEMORY))),
        Contender(_PEER, "copying", (task.compression,)),
    )
    found = in_rounds(contenders, source, task)
    whole, own = size_of(source), found.results[_OWN]
    reads = tuple(turn.read / whole for turn in own)
    return Outcome(
        findings=(
            at_least("copy: speed of copying and compressing", SPEED, found.figures(seconds).ratios(_PEER, _OWN)),
            at_most("copy: peak GiB", MEMORY / 2**30, tuple(turn.peak / 2**30 for turn in own)),
            at_most("copy: bytes read over the source's", 1 + _ALLOWED / whole, reads),
        ),
        sheets=(table(f"copy: {format_bytes(whole)}, {task.compression}", found, whole, task),),
        document=document(found),
        others=found.others,
    )


def table(title: str, found: Turns[str, Turn], whole: int, task: Task) -> Sheet:
    """Return what the contenders took; the first is compared with each."""
    times = found.figures(seconds)
    own = next(iter(found.results))
    rows = []
    for name, turns in found.results.items():
        middle = sorted(turns, key=seconds)[len(turns) // 2]
        speed, ratio = whole / middle.seconds / 1e6, np.median(times.ratios(name, own))
        sizes = (middle.peak, middle.read, middle.written, middle.device_read, middle.device_written, middle.stored)
        figures = (f"{middle.seconds:.2f}", f"{middle.cpu:.2f}", f"{speed:.0f}", f"{ratio:.2f}x")
        rows.append((name, *figures, *map(format_bytes, sizes)))
    caption = (
        f"the middle of {task.rounds} rounds, page cache {'emptied' if task.is_cold else 'warm'}; flushed to the "
        "device; speed counts the source's bytes"
    )
    return Sheet(title, caption, _COLUMNS, tuple(rows))
