"""Labels: what a reader must know of a run before any figure, a sentence each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from voxload.benchmark.cold.coldness import DIRECT, WARM
from voxload.benchmark.cold.datafiles import DataFiles
from voxload.benchmark.loaders.own import APART, KIND
from voxload.benchmark.loaders.protocol import Task
from voxload.benchmark.measure.document import Run
from voxload.benchmark.workload.emulation import Emulator
from voxload.benchmark.workload.workload import EPOCH, RUN
from voxload.readers.registry import open_reader
from voxload.units import format_bytes


def data_facts(task: Task, files: DataFiles) -> dict[str, Any]:
    """Return facts of the samples, from the first of them and the sizes of all files; opens one sample."""
    reader = open_reader(task.data.locations(0)[0])
    try:
        info = reader.describe()
    finally:
        reader.close()
    count = len(task.data)
    return {
        "location": task.workload.samples.location,
        "samples": count,
        "shape": list(info.shape),
        "axes": info.axes,
        "dtype": info.native_dtype.str,
        "format": info.format,
        "chunks": None if info.chunks is None else list(info.chunks),
        "shards": None if info.shards is None else list(info.shards),
        "codecs": list(info.codecs),
        "sample_bytes": info.decoded_bytes,
        "bytes": info.decoded_bytes * count,
        "files": len(files.files),
        "remote_volumes": files.remote,
        "stored_bytes": files.nbytes,
    }


_OWN = (KIND.name, APART.name)
"""Loaders that can foresee orders."""
TIMES_MEMORY = 5
"""How many times the nodes' memory MLPerf Storage asks a data set to have."""


def labels(
    task: Task, runs: Sequence[Run], *, data: Mapping[str, Any], hosts: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return everything that makes figures better, or others, than they look.

    Parameters
    ----------
    task
        What was loaded, as rank 0 saw it.
    runs
        The repetitions.
    data, hosts
        As Document has them.
    """
    ranks = len(runs[0].records)
    found = [
        *task.workload.scaled,
        *_absent(task, ranks),
        *_small(data, hosts),
        *(f"Page cache: {run.cold.text}." for run in runs),
        *_later_epochs(task, runs),
        *_seed(task),
        *_others(task),
        *(f"A rank warned: {note}" for run in runs for record in run.records for note in record.notes),
    ]
    return tuple(dict.fromkeys(found))


def _absent(task: Task, ranks: int) -> Iterator[str]:
    if ranks < task.grid.world_size:
        yield (
            f"{ranks} of {task.grid.world_size} ranks ran: the others' blocks were read by nobody, "
            "and nothing came from peers."
        )


def _small(data: Mapping[str, Any], hosts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Tell of a data set that the page cache can hold: the storage is not measured then, once it is warm."""
    memory = sum(int(host["memory_bytes"]) for host in hosts)
    stored = int(data["stored_bytes"])
    if stored < TIMES_MEMORY * memory:
        yield (
            f"The data set, {format_bytes(stored)}, is smaller than {TIMES_MEMORY} times the memory of the nodes, "
            f"{format_bytes(memory)}: epochs after the first may come from the page cache."
        )


def _later_epochs(task: Task, runs: Sequence[Run]) -> Iterator[str]:
    """Tell which epochs after the first did not begin cold, or not wholly."""
    workload = task.workload
    if workload.length.epochs == 1:
        return
    if workload.coldness.when == RUN:
        yield "Only the first epoch of each run began cold."
    if workload.coldness.when != EPOCH:
        return
    if workload.supply.keeps_blocks:
        yield (
            "Before each epoch the page cache was emptied, not the loader's own room: later epochs did not read from "
            "the storage what it had kept, or fetched ahead."
        )
    elif workload.supply.loader in _OWN and workload.supply.clairvoyant:
        yield "Nothing was read before its epoch began: each epoch was to begin cold."
    warm = max((share for run in runs if run.cold.method != DIRECT for share in _later_shares(run)), default=0.0)
    if warm > WARM:
        yield (
            f"WARM: before a later epoch {100 * warm:.1f} % of the data set was in memory. Pages that processes of the "
            "loader have mapped cannot be dropped."
        )


def _later_shares(run: Run) -> Iterator[float]:
    """Yield which share of the data set was in memory before each epoch after the first, where somebody looked."""
    for record in run.records:
        yield from (epoch.resident for epoch in record.epochs[1:] if not math.isnan(epoch.resident))


def _seed(task: Task) -> Iterator[str]:
    supply = task.workload.supply
    if supply.loader not in _OWN or not task.workload.looks_beyond:
        return
    if supply.keeps_blocks:
        yield "The loader knew the seed, and so the order of all epochs; MLPerf Storage forbids that."
    else:
        yield "The loader knew the seed, and read first batches before their epoch began; MLPerf Storage forbids that."


def _others(task: Task) -> Iterator[str]:
    workload = task.workload
    if workload.verify:
        yield "Blocks were verified, which takes time between steps."
    if workload.emulation.kind == "none":
        yield "No computing was emulated: steps follow each other as fast as batches come."
    if not workload.lockstep:
        yield "Ranks did not wait for each other after each step, as training does."
    note = Emulator(workload.emulation).note
    if note:
        yield f"Emulated computing: {note}."
