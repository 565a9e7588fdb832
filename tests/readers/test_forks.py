"""A process that made a data set and read from it may be forked: it has one thread then."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from tests.support import processes
from tests.support.ranks import printed_by_ranks
from voxload.readers import team
from voxload.readers.remote.fetchers import fetchers

FORKS = """
import json, os, sys, threading
seen = []
def native():
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            names.append(open(f"/proc/self/task/{task}/comm").read())
        except OSError:  # a thread that Python has let go of already
            pass
    return sum("jemalloc" not in name for name in names)
def look():  # hooks run in the order opposite to that of their registration: this one is the last
    names = [thread.name for thread in threading.enumerate()]
    while len(names) == 1 and native() > 1:  # the system ends them a moment later
        pass
    seen.append(names)
os.register_at_fork(before=look)
import torch, voxload
torch.set_num_threads(1)
for name, paths in json.loads(sys.argv[1]).items():
    seen.clear()
    data = voxload.VolumeDataset(paths, fields={"x": "volume"}, axes="CDHW")
    wanted = [data[index][0] for index in range(len(data))]
    started = native()
    for workers in (1, 2):
        loader = torch.utils.data.DataLoader(data, num_workers=workers, multiprocessing_context="fork")
        for (x,), whole in zip(loader, wanted, strict=True):
            assert torch.equal(x[0], whole), name
        assert torch.equal(data[0][0], wanted[0]), name
    print(json.dumps([name, started, seen]), flush=True)
"""


def _hdf5(folder: Path) -> list[str]:
    for index in range(2):
        with h5py.File(folder / f"{index}.h5", "w") as file:
            file.create_dataset("volume", data=_voxels(index), chunks=(4, 16, 16, 16), compression="gzip")
    return [str(folder / f"{index}.h5") for index in range(2)]


def _zarr(folder: Path, **words: object) -> list[str]:
    for index in range(2):
        group = zarr.open_group(folder / f"{index}.zarr", mode="w")
        group.create_array("volume", data=_voxels(index), chunks=(4, 16, 16, 16), **words)  # type: ignore[arg-type]
    return [str(folder / f"{index}.zarr") for index in range(2)]


def _filtered(folder: Path) -> list[str]:
    """Store what zarr-python decodes and we do not."""
    return _zarr(folder, filters=[zarr.codecs.numcodecs.Delta(dtype="<i2")])


def _voxels(index: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int16]]:
    return np.random.default_rng(index).integers(0, 99, (4, 32, 32, 32)).astype(np.int16)


STORES: dict[str, Callable[[Path], list[str]]] = {"hdf5": _hdf5, "zarr": _zarr, "filtered zarr": _filtered}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
def test_a_process_that_reads_is_forked_with_one_thread(tmp_path: Path) -> None:
    """Torch's forked workers read what the parent read, and no thread was there to hold a lock of theirs."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    paths = {}
    for name, store in STORES.items():
        (tmp_path / name).mkdir()
        paths[name] = store(tmp_path / name)
    command = [sys.executable, "-W", "error:this process is forked", "-c", FORKS, json.dumps(paths)]
    done = processes.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for name, _, _ in told] == list(STORES)
    for name, started, seen in told:
        if len(os.sched_getaffinity(0)) > 1 and name != "filtered zarr":
            assert started > 1, name  # helpers decoded: there was something to stop
        # Torch's own feeder of indices starts with the first worker.
        own = [[thread for thread in threads if not thread.startswith("QueueFeeder")] for threads in seen]
        assert [len(threads) for threads in own] == [1, 1, 1], (name, own)
    assert "forked" not in done.stderr


def test_reads_go_on_while_helpers_are_paused() -> None:
    """A pause between any two steps of a read loses none of its tasks, and helpers come back."""
    mine, done, stop = team.Team(4), list[int](), threading.Event()

    def pause() -> None:
        while not stop.is_set():
            mine.pause()

    pausing = threading.Thread(target=pause)
    pausing.start()
    try:
        for _ in range(200):
            mine.run(done.append, range(20))
    finally:
        stop.set()
        pausing.join()
        mine.close()
    assert sorted(done) == sorted(list(range(20)) * 200)


def test_requests_go_on_while_fetchers_are_paused() -> None:
    """What was asked before a pause is done, and what is asked after it."""
    gate = threading.Event()
    pool = fetchers()
    waiting = [pool.submit(gate.wait, processes.LIMIT) for _ in range(3)]
    pool.pause()  # type: ignore[attr-defined]
    after = pool.submit(lambda: "done")
    assert after.result(processes.LIMIT) == "done"
    gate.set()
    assert all(request.result(processes.LIMIT) for request in waiting)


BUSY = """
import os, threading, warnings
from voxload.readers.remote.fetchers import fetchers
begun, gate = threading.Event(), threading.Event()
busy = fetchers().submit(lambda: begun.set() or gate.wait())
begun.wait()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for _ in range(2):
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
gate.set()
busy.result()
for warning in told:
    if warning.category is RuntimeWarning:
        print(warning.message)
"""


@pytest.mark.long
def test_threads_at_work_are_named_once(tmp_path: Path) -> None:
    """Who forks while a request is under way is told what to do instead, and the request is still answered."""
    (tmp_path / "busy.py").write_text(BUSY)
    (line,) = printed_by_ranks(tmp_path / "busy.py", ranks=1).splitlines()
    assert "voxload-fetch_0" in line
    assert 'multiprocessing_context="forkserver" or "spawn"' in line


def test_a_pool_without_work_has_no_thread_after_it_was_dismissed() -> None:
    """Its threads are waited for, so that a fork that follows finds none."""
    mine = team.Team(4)
    mine.run(lambda _: None, range(8))
    pool = mine._pool
    mine.pause()
    assert pool is None or not any(thread.is_alive() for thread in pool._threads)
    mine.close()
