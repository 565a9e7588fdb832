"""torch's loader over voxload's data set: what no other library's loader reads is read, and is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.prefetching.served import extents, linked, tally
from tests.support.launches import fork_launches
from tests.support.throttle.process import throttled_storage
from voxload.benchmark.generate.generate import generate
from voxload.benchmark.generate.plan import DatasetPlan
from voxload.benchmark.generate.storage import Storage, StoreFormat
from voxload.benchmark.run.job import Request
from voxload.benchmark.run.launch import launch_benchmark
from voxload.benchmark.workload.workload import Length, Samples, Share, Supply, Workload

EPOCHS = 2
PLAN = DatasetPlan((2, 16, 8, 8), "<i2", Storage(StoreFormat.ZARR3, chunks=(2, 4, 8, 8)), samples=4)


@pytest.mark.long
def test_samples_behind_urls_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the workers of two ranks, each its own blocks, in every epoch anew; the parents open none of them before."""
    fork_launches(monkeypatch)
    links = tmp_path / "links"
    links.mkdir()
    generate(tmp_path / "data", PLAN)
    supply = Supply("torch-voxload", threads=1)
    workload = Workload(
        Samples(str(links), allow_outside=True), Share((2, 1, 1)), Length(EPOCHS), supply=supply, verify=True
    )
    with throttled_storage(tmp_path / "data", bandwidth=1e9, latency=0.0) as storage:
        linked(tmp_path / "data", PLAN, storage.url, links)
        document = launch_benchmark(Request(workload), processes=2, hear=lambda _: None, environ={})
        found = tally(storage.served(), extents(tmp_path / "data", PLAN))
    assert document is not None
    assert document.runs[0].figures["samples"] == EPOCHS * PLAN.samples
    assert [record.wrong for record in document.runs[0].records] == [(), ()]
    assert (found.least, found.most) == (EPOCHS, EPOCHS)
    assert found.data_bytes == EPOCHS * PLAN.samples * PLAN.sample_bytes
