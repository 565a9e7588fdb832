"""Chunks: volumes of HDF5 in chunks of 16^3, as h5py and PyTables guess them, read by one thread of one process.

Whoever reads decodes every chunk each time: h5py's own cache is switched off, and voxload keeps none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import numpy.typing as npt

from bench.harness.findings import Outcome, Sheet, at_most
from voxload.benchmark.measure.turns import in_turns
from voxload.core.library import function
from voxload.readers import Location, open_reader
from voxload.readers.team import default_threads, set_threads

CODECS: dict[str, dict[str, Any]] = {
    "gzip": {"compression": "gzip", "compression_opts": 4, "shuffle": True},
    "lzf": {"compression": "lzf", "shuffle": True},
    "szip": {"compression": "szip"},
    "scale-offset": {"scaleoffset": 0},
    "bzip2": dict(hdf5plugin.BZip2()),
    "zstd": dict(hdf5plugin.Zstd()),
    "lz4": dict(hdf5plugin.LZ4()),
    "blosc": dict(hdf5plugin.Blosc(cname="lz4")),
    "blosc2": dict(hdf5plugin.Blosc2(cname="lz4")),
    "bitshuffle": dict(hdf5plugin.Bitshuffle()),
    "plain": {},
}
MOST = 1.0
"""Of voxload's time over h5py's."""
_CHUNK = 16
_READS = 8
_keep = function("limit_kept_chunks", "n")


@dataclass(frozen=True, slots=True)
class Reading:
    """One reader of one codec."""

    codec: str
    reader: str


def measured(folder: Path, size: int, *, rounds: int) -> Outcome:
    """Time all codecs in turns."""
    values = np.random.default_rng(0).poisson(3, (size,) * 3).astype("<i2")
    paths = {codec: _written(folder / f"chunks-{size}-{codec}.h5", values, CODECS[codec]) for codec in CODECS}
    readings = [Reading(codec, reader) for codec in CODECS for reader in ("voxload", "h5py")]
    wrong: list[str] = []

    def run(reading: Reading) -> float:
        seconds, found = (_own if reading.reader == "voxload" else _theirs)(paths[reading.codec], values)
        if not np.array_equal(found, values):
            wrong.append(f"{reading.codec}, {reading.reader}")
        return seconds

    set_threads(1)
    _keep(0)
    try:
        turns = in_turns(tuple(readings), rounds, run)
    finally:
        set_threads(default_threads())
    ratios = {codec: turns.ratios(Reading(codec, "voxload"), Reading(codec, "h5py")) for codec in CODECS}
    rows = tuple(
        (codec, *(f"{1e3 * turns.median(Reading(codec, reader)):.2f}" for reader in ("voxload", "h5py")),
         f"{np.median(ratios[codec]):.2f}")
        for codec in CODECS
    )  # fmt: skip
    return Outcome(
        findings=tuple(at_most(f"chunks of 16^3, {codec}: over h5py", MOST, ratios[codec]) for codec in CODECS),
        sheets=(Sheet(f"{size}^3 int16 in chunks of 16^3", "ms", ("codec", "voxload", "h5py", "ratio"), rows),),
        document={f"{each.codec}, {each.reader}": turns.results[each] for each in readings},
        others=turns.others,
        wrong=tuple(wrong),
    )


def _written(path: Path, values: npt.NDArray[np.int16], options: dict[str, Any]) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, chunks=(_CHUNK,) * 3, **options)
    return path


def _own(path: Path, values: npt.NDArray[np.int16]) -> tuple[float, npt.NDArray[np.int16]]:
    with closing(open_reader(Location(str(path), "x", axes="DHW"))) as reader:
        whole = reader.describe().whole
        out = np.empty((1, *values.shape), values.dtype)
        return _best(lambda: reader.read_into(whole, out)), out[0]


def _theirs(path: Path, values: npt.NDArray[np.int16]) -> tuple[float, npt.NDArray[np.int16]]:
    with h5py.File(path, rdcc_nbytes=0) as file:
        dataset, out = file["x"], np.empty_like(values)
        return _best(lambda: dataset.read_direct(out)), out


def _best(read: Callable[[], None]) -> float:
    """Return the least of some reads: others on the machine disturbed it least."""
    found = []
    for _ in range(_READS):
        begin = time.perf_counter()
        read()
        found.append(time.perf_counter() - begin)
    return min(found)
