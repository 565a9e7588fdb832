"""Memory: a universe converted with voxload's own choices, what that held at most, and whether the result is exact."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr

from bench.converting.samples import make_cubes
from bench.converting.turn import Contender, Task, remove, size_of
from bench.harness.findings import Finding, Outcome, Sheet, at_most
from voxload.convert import ConvertOptions
from voxload.units import format_bytes

PEAK_MIB = 512.0
FORMATS = ("zarr", "hdf5")
_PLANES = 64
"""Planes that are compared at a time: a chunk's, so that none is decoded twice."""


def memory(folder: Path, task: Task) -> Outcome:
    """Convert once into each format."""
    source, result = make_cubes(folder, 1, task.extent, has_noise=True), folder / "result"
    choices = ConvertOptions()
    findings: list[Finding] = []
    rows: list[tuple[str, ...]] = []
    document: dict[str, Any] = {}
    wrong: list[str] = []
    for stored in FORMATS:
        words = (stored, "", str(choices.compression), str(choices.max_memory))
        turn = Contender(stored, "converting", words).run(source, result, is_cold=task.is_cold)
        equal = is_equal(source, result)
        findings.append(at_most(f"memory: peak MiB into {stored}", PEAK_MIB, (turn.peak / 2**20,)))
        sizes = map(format_bytes, (turn.peak, turn.read, turn.written, turn.stored))
        rows.append((stored, f"{turn.seconds:.2f}", *sizes, "yes" if equal else "NO"))
        document[stored] = asdict(turn) | {"is_equal": equal}
        if not equal:
            wrong.append(f"memory: {stored} has other voxels than its source")
    remove(result)
    columns = ("format", "seconds", "peak\nmemory", "read", "written", "stored", "equal bit\nfor bit")
    sheet = Sheet(f"memory: {format_bytes(size_of(source))}", "one conversion each", columns, tuple(rows))
    return Outcome(tuple(findings), (sheet,), document, wrong=tuple(wrong))


def is_equal(source: Path, result: Path) -> bool:
    """Compare a converted universe with its source, through h5py and zarr-python alone."""
    (raw,) = source.iterdir()
    (stored,) = (*result.glob("*.h5"), *result.glob("*.zarr"))
    with h5py.File(raw, "r") as file:
        if stored.is_file():
            with h5py.File(stored, "r") as converted:
                return _equals(file["full"], converted["full"])
        return _equals(file["full"], zarr.open_array(stored / "full", mode="r"))


def _equals(cube: Any, volume: Any) -> bool:
    """Compare (D, H, W, C) with (C, D, H, W)."""
    depth, *others = cube.shape
    if volume.shape != (others[-1], depth, *others[:-1]) or volume.dtype != cube.dtype:
        return False
    slabs = (slice(first, first + _PLANES) for first in range(0, depth, _PLANES))
    return all(np.array_equal(volume[:, slab], cube[slab].transpose(3, 0, 1, 2)) for slab in slabs)
