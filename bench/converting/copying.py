"""Copying: how fast universes convert, against a program that compresses the same bytes without rearranging them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from bench.converting.task import Task
from bench.converting.turn import Contender, Turn, rounds
from bench.engining.outcome import Outcome, Sheet
from bench.harness.findings import at_least, at_most
from voxload.units import format_bytes

SPEED = 0.6
MEMORY = 2**30
_OWN, _PEER = "voxload convert", "copy and compress"
_ALLOWED = 64 * 2**20
"""Bytes read beside the source: the boxes that are tried, of which HDF5 reads 64 KiB for a row, and Python modules."""


def copying(source: Path, task: Task) -> Outcome:
    """Measure, and compare with the claim."""
    words = ("zarr", "", task.compression, str(MEMORY))
    contenders = [
        Contender(_OWN, "converting", words),
        Contender(_PEER, "copying", (task.compression,)),
    ]
    found = rounds(contenders, source, task.rounds, is_cold=task.is_cold)
    whole = sum(path.stat().st_size for path in source.iterdir())
    own, peer = found[_OWN], found[_PEER]
    return Outcome(
        findings=(
            at_least("copy: speed of copying and compressing", SPEED, _ratios(peer, own)),
            at_most("copy: peak GiB", MEMORY / 2**30, tuple(turn.peak / 2**30 for turn in own)),
            at_most(
                "copy: bytes read over the source's", 1 + _ALLOWED / whole, tuple(turn.read / whole for turn in own)
            ),
        ),
        sheets=(table(f"copy: {format_bytes(whole)}, {task.compression}", found, whole, task),),
        document={name: [asdict(turn) for turn in turns] for name, turns in found.items()},
    )


def _ratios(theirs: list[Turn], ours: list[Turn]) -> tuple[float, ...]:
    return tuple(their.seconds / our.seconds for their, our in zip(theirs, ours, strict=True))


def table(title: str, found: dict[str, list[Turn]], whole: int, task: Task) -> Sheet:
    """Return what the contenders took; the first is compared with each."""
    own = next(iter(found.values()))
    rows = []
    for name, turns in found.items():
        middle = sorted(turns, key=lambda turn: turn.seconds)[len(turns) // 2]
        ratio = sorted(_ratios(turns, own))[len(turns) // 2]
        times = (f"{middle.seconds:.2f}", f"{middle.cpu:.2f}", f"{whole / middle.seconds / 1e6:.0f}", f"{ratio:.2f}x")
        sizes = (middle.peak, middle.read, middle.written, middle.device_read, middle.device_written, middle.stored)
        rows.append((name, *times, *(format_bytes(size) for size in sizes)))
    return Sheet(
        title,
        f"the middle of {task.rounds} rounds, page cache {'emptied' if task.is_cold else 'warm'}; flushed to the "
        "device; speed counts the source's bytes",
        (
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
        ),
        tuple(rows),
    )
