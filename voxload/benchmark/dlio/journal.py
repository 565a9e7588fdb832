"""Journal: what a rank measured under DLIO, and the file that it is written to."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from voxload.atomic import replacing
from voxload.benchmark.counts import difference
from voxload.benchmark.dlio.clock import StepClock
from voxload.benchmark.document import record_of
from voxload.benchmark.kernel import KernelCounter
from voxload.benchmark.record import Epoch, Record
from voxload.errors import DataError, NotFoundError


class Journal:
    """Gathers a rank's epochs into a `Record`, and writes it after each; used by one thread.

    The kernel is asked between epochs, where DLIO looks at no clock.

    Parameters
    ----------
    path
        The file.
    rank
        This rank.
    """

    def __init__(self, path: Path, rank: int) -> None:
        self.clock = StepClock()
        self._path, self._rank = path, rank
        self._counter = KernelCounter()
        self._mark = self._counter.mark()
        self._counts: Mapping[str, Any] = {}
        self._epochs: list[Epoch] = []

    def end_epoch(self, counts: Mapping[str, Any]) -> None:
        """Note the epoch that the clock has seen, with what the loader counted so far, and write all of them."""
        steps, wall = self.clock.epoch()
        kernel = self._counter.since(self._mark)
        self._epochs.append(Epoch(steps, wall, kernel, difference(counts, self._counts), math.nan))
        self._counts = counts
        self._write()
        self._mark = self._counter.mark()

    def _write(self) -> None:
        first, memory = self._epochs[0].steps, self._counter.memory()
        record = Record(
            rank=self._rank,
            node=socket.gethostname(),
            epochs=tuple(self._epochs),
            first_batch=first.begin[0] + first.stall[0] if first.begin else 0.0,
            peak_memory=memory.peak,
            shared_memory=memory.shared,
        )
        values = asdict(record)
        for epoch in values["epochs"]:
            epoch["resident"] = None  # nobody looked, and JSON has no NaN
        with replacing(self._path) as temporary:
            temporary.write_text(json.dumps(values, allow_nan=False), encoding="utf-8")


def journal_path(folder: Path, rank: int) -> Path:
    """Return the file of a rank in DLIO's output folder."""
    return folder / f"voxload_dlio_{rank}.json"


def read_records(folder: Path) -> tuple[Record, ...]:
    """Return what the ranks of a run of DLIO wrote into its output folder, by rank.

    Raises NotFoundError when there is nothing, DataError when a file is something else.
    """
    paths = sorted(folder.glob("voxload_dlio_*.json"))
    if not paths:
        raise NotFoundError(
            f"{folder}",
            found="no voxload_dlio_RANK.json",
            expected="the output folder of a run with voxload's data loader",
            remedy="set workload.reader.data_loader_classname to voxload.benchmark.dlio.loader.VoxloadDataLoader",
        )
    return tuple(sorted(map(_read, paths), key=lambda record: record.rank))


def _read(path: Path) -> Record:
    try:
        return record_of(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{path}", found=str(error), expected="what voxload's data loader for DLIO writes") from error
