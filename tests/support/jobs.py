"""Jobs: what a loader with a disk tier gives to one process after the other.

Run as a program, it imports what takes long once, then forks a process for each line of its standard input, before
there is any thread: each is a job of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import processes

_LONG = (
    "voxload.data.dataset",
    "voxload.loader.caching.prefetcher",
    "voxload.loader.dataloader",
    "voxload.readers.hdf5.format",
    "voxload.readers.remote.obstoreobjects",
    "voxload.readers.zarr.arrays",
)
"""What takes long to import."""
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Case:
    """One data set of one sample."""

    name: str
    source: str
    """File, folder, URL or catalogue."""
    dataset: str
    axes: str | None = "DHW"
    halo: int = 0
    blocks: int = 1
    """Along the first axis; the job has the first one."""
    boundary: str = "zero"
    has_cache: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job found."""

    block: np.ndarray[Any, Any]
    """The block."""
    stored: int
    """How often it was read from the storage."""
    warned: tuple[str, ...]
    """Warnings about blocks that are not kept."""


class Jobs:
    """Starts jobs; see `started`."""

    def __init__(self, process: Any, folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._count = 0

    def run(self, cases: Sequence[Case], *, tier: Path) -> dict[str, Outcome]:
        """Run a job, as a process of its own, over all cases; return what it found, by case."""
        self._count += 1
        out = self._folder / f"job{self._count}"
        out.mkdir()
        order = {"cases": [asdict(case) for case in cases], "tier": str(tier), "out": str(out)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer == "0\n", answer
        told = json.loads((out / "told.json").read_text())
        return {
            name: Outcome(np.load(out / f"{number}.npy"), one["stored"], tuple(one["warned"]))
            for number, (name, one) in enumerate(told.items())
        }


@contextmanager
def started(folder: Path) -> Iterator[Jobs]:
    """Yield what starts jobs, whose results and chunk tables lie in a folder."""
    environ = os.environ | {"PYTHONPATH": str(ROOT), "VOXLOAD_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.support.jobs"]
    with processes.started(command, stdin=-1, stdout=-1, text=True, cwd=ROOT, env=environ) as process:
        yield Jobs(process, folder)


def _serve() -> None:
    for name in _LONG:
        importlib.import_module(name)
    assert threading.active_count() == 1
    for line in sys.stdin:
        child = os.fork()
        if not child:
            status = 1
            try:
                _job(**json.loads(line))
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


def _job(cases: list[dict[str, Any]], tier: str, out: str) -> None:
    told = {}
    for number, one in enumerate(cases):
        case = Case(**one)
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            block, stored = _epoch(case, tier)
        np.save(f"{out}/{number}.npy", block)
        warned = [str(each.message) for each in noted if "not kept" in str(each.message)]
        told[case.name] = {"stored": stored, "warned": warned}
    Path(out, "told.json").write_text(json.dumps(told))


def _epoch(case: Case, tier: str) -> tuple[np.ndarray[Any, Any], int]:
    voxload = importlib.import_module("voxload")
    grid = voxload.ProcessGrid(spatial=(case.blocks, 1, 1), world_size=case.blocks)
    data = voxload.VolumeDataset(
        case.source,
        fields={"x": case.dataset} if case.dataset else None,
        axes=case.axes,
        grid=grid,
        halo=case.halo,
        boundary=case.boundary,
    )
    cache = voxload.Cache(disk=tier, disk_size="4MiB", epochs=1) if case.has_cache else None
    loader = voxload.DataLoader(data, 1, cache=cache)
    ((x,),) = list(loader)
    block = x.numpy()[0, 0].copy()
    stored = loader.stats().sources["storage"].fetches if case.has_cache else 1
    loader.close()
    data.close()
    return block, stored


if __name__ == "__main__":
    _serve()
