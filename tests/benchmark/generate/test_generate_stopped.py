"""Generating that is killed, loses a worker or fills the disk keeps complete samples, and is taken up again."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from tests.benchmark.small_sets import CHUNKED, check_complete, samples, small_plan
from tests.support import scripts
from voxload.benchmark.generate.generate import generate
from voxload.benchmark.generate.generated import PLAN_NAME
from voxload.benchmark.generate.plan import DatasetPlan
from voxload.benchmark.generate.storage import Extents, Storage, StoreFormat
from voxload.benchmark.generate.stores import write_sample
from voxload.catalog.places import CATALOG_NAME
from voxload.convert.options import Progress
from voxload.errors import InternalError, StorageError, UsageError
from voxload.launch.worker_pool import worker_pool

GENERATE = "voxload.benchmark.generate.generate"
CHILD = """
import json, sys
from pathlib import Path
from voxload.benchmark.generate.plan import DatasetPlan
from voxload.benchmark.generate.generate import generate
folder, plan, workers, samples = sys.argv[1:]
plan = DatasetPlan.from_dict(json.loads(plan), "plan")
def show(progress):
    if progress.bytes_done >= int(samples) * plan.sample_bytes:
        sys.stdout.write("reached\\n")
        sys.stdout.flush()
        sys.stdin.read()
generate(folder, plan, workers=int(workers), progress=show)
"""
"""A run that says when it has made the voxels of some samples and then waits until it is killed."""


@contextlib.contextmanager
def _stopped(folder: Path, plan: DatasetPlan, *, workers: int, samples: int) -> Iterator[scripts.Script]:
    """Run in a process of its own up to some samples; it waits there, and is killed at the end."""
    plan_text = json.dumps(plan.to_dict())
    with scripts.started(CHILD, folder, plan_text, str(workers), str(samples), imports=[GENERATE]) as child:
        try:
            assert child.stdout.readline() == "reached\n"
            yield child
        finally:
            child.kill()
            child.wait()
    assert child.returncode == -signal.SIGKILL


@pytest.mark.long
def test_killed_and_run_again(tmp_path: Path) -> None:
    """A run killed in its third sample has two; the next one keeps these, makes the others, and leaves nothing over."""
    plan = replace(small_plan(StoreFormat.ZARR3), samples=4)
    with _stopped(tmp_path, plan, workers=1, samples=3):
        complete = {path: path.stat().st_mtime_ns for path in samples(tmp_path)}
        assert len(complete) == 2
        with pytest.raises(UsageError, match="process"):
            generate(tmp_path, plan)
    assert not (tmp_path / CATALOG_NAME).exists()
    report = generate(tmp_path, plan)
    assert report.written == 2
    assert {path: path.stat().st_mtime_ns for path in complete} == complete
    check_complete(tmp_path, plan)
    assert generate(tmp_path, plan).written == 0


@pytest.mark.long
def test_workers_end_with_their_owner(tmp_path: Path) -> None:
    """When the owner of worker processes is killed, they end too; the next run makes what is missing."""
    plan = replace(small_plan(StoreFormat.NPY), samples=40)
    with _stopped(tmp_path, plan, workers=2, samples=3) as child:
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        assert len(children) >= 2
        handles = [os.pidfd_open(int(number)) for number in children]
    for handle in handles:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        assert poll.poll(30_000)
        os.close(handle)
    kept = len(samples(tmp_path))
    assert kept >= 3
    report = generate(tmp_path, plan)
    assert report.written == 40 - kept
    check_complete(tmp_path, plan)


@pytest.fixture(scope="session")
def _tracker() -> None:
    """Start the process that Python keeps beside spawned ones, so that no test is charged for it."""
    resource_tracker.ensure_running()


@pytest.mark.long
@pytest.mark.usefixtures("_tracker", "no_leaks")
def test_several_workers_make_the_same(tmp_path: Path) -> None:
    """Files of two processes equal those of one, byte for byte."""
    plan = replace(small_plan(StoreFormat.HDF5, codec="gzip"), samples=5)
    told: list[Progress] = []
    assert generate(tmp_path / "two", plan, workers=2, progress=told.append).written == 5
    generate(tmp_path / "one", plan)
    for one, two in zip(samples(tmp_path / "one"), samples(tmp_path / "two"), strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert {progress.sample for progress in told} == {plan.name(number) for number in range(5)}
    check_complete(tmp_path / "two", plan)


@pytest.mark.long
@pytest.mark.usefixtures("_tracker", "no_leaks")
def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    """The death of a worker is an error with a remedy, and not a wait for ever; another error arrives as it is."""
    with pytest.raises(InternalError, match="fewer --workers"), worker_pool(1) as pool:
        pool.submit(os._exit, 3).result()
    with pytest.raises(StorageError, match=r"sample_00000000.*complete samples are kept"), worker_pool(1) as pool:
        pool.submit(write_sample, small_plan(StoreFormat.NPY), tmp_path / "nowhere", 0).result()


@pytest.mark.usefixtures("_tracker", "no_leaks")
def test_ctrl_c_does_not_reach_a_worker_that_begins() -> None:
    """It is blocked in a worker before there is any Python in it, and here it is not."""
    with worker_pool(1) as pool:
        status = pool.submit(Path.read_text, Path("/proc/self/status")).result()
    (blocked,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:")]
    assert int(blocked, 16) >> (signal.SIGINT - 1) & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    """A file that may not grow as a full disk's: one line, complete samples are kept, and the rest comes later."""
    code = (
        "import json, resource, sys\n"
        "from voxload.benchmark.generate.plan import DatasetPlan\n"
        "from voxload.benchmark.generate.generate import generate\n"
        "from voxload.errors import StorageError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))\n"
        "for text in sys.argv[2:]:\n"
        "    plan = DatasetPlan.from_dict(json.loads(text), 'plan')\n"
        "    try:\n"
        "        generate(f'{sys.argv[1]}/{plan.storage.format}', plan)\n"
        "    except StorageError as error:\n"
        "        print(error)\n"
    )
    chunks: Extents = (2, 64, 64, 64)
    plans = [
        DatasetPlan((2, 64, 64, 64), "<i4", Storage(stored, chunks=chunks if stored in CHUNKED else None))
        for stored in StoreFormat
    ]
    texts = [json.dumps(plan.to_dict()) for plan in plans]
    done = scripts.run(code, tmp_path, *texts, imports=[GENERATE])
    lines = done.stdout.splitlines()
    assert len(lines) == len(plans)
    assert not done.stderr
    for plan, line in zip(plans, lines, strict=True):
        folder = tmp_path / plan.storage.format
        assert "File too large" in line
        assert "complete samples are kept" in line
        assert {path.name for path in folder.iterdir()} == {PLAN_NAME}
        generate(folder, plan)
        check_complete(folder, plan)
