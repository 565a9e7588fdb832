"""Whole runs: what they count is what was stored, delivered and waited for, by voxload and by others."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.benchmark import documents
from tests.support.launches import fork_launches
from tests.support.settled import settle
from voxload.benchmark.generate.generate import generate
from voxload.benchmark.generate.plan import Contents, DatasetPlan, Kind
from voxload.benchmark.generate.storage import Codec, Storage, StoreFormat
from voxload.benchmark.measure.document import Document
from voxload.benchmark.measure.rank_group import RankGroup
from voxload.benchmark.run.job import Request, fit, run_benchmark
from voxload.benchmark.run.launch import launch_benchmark, request_json, request_of
from voxload.benchmark.workload.workload import Coldness, Emulation, Length, Samples, Share, Supply, Workload
from voxload.errors import DataError, UsageError

SHAPE = (2, 64, 64, 64)
COUNT = 8


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return eight samples in HDF5, compressed."""
    storage = Storage(StoreFormat.HDF5, chunks=(2, 32, 32, 32), codec=Codec("gzip"))
    folder = tmp_path_factory.mktemp("bench") / "data"
    generate(folder, DatasetPlan(SHAPE, "<i2", storage, Contents(Kind.COUNTS), COUNT))
    return folder


def _workload(data: Path, **parts: Any) -> Workload:
    return replace(Workload(Samples(str(data))), **parts)


def _alone(workload: Workload) -> Document:
    document = run_benchmark(Request(workload), RankGroup(None, rank=0, size=1), lambda _: None)
    assert document is not None
    return document


@pytest.mark.parametrize("loader", ["voxload", "torch-h5py", "h5py"])
def test_one_rank_counts_what_it_did(loader: str, data: Path) -> None:
    """Bytes delivered are those of the blocks, and the time is that of the steps."""
    workload = _workload(
        data, length=Length(epochs=2), supply=Supply(loader=loader, threads=0 if loader == "h5py" else 2)
    )
    before = time.perf_counter()
    document = _alone(workload)
    outside = time.perf_counter() - before
    found = document.runs[0].figures
    assert (found["steps"], found["samples"]) == (2 * COUNT, 2 * COUNT)
    assert found["delivered_bytes"] == 2 * COUNT * int(np.prod(SHAPE)) * 2
    assert 0 < found["seconds"] < outside
    record = document.runs[0].records[0]
    for epoch in record.epochs:
        # Nothing lies between steps but a few lines of Python.
        assert sum(epoch.steps.durations) <= epoch.wall
    assert found["samples_per_second"] == pytest.approx(2 * COUNT / sum(epoch.wall for epoch in record.epochs))
    assert document.data["stored_bytes"] == sum(path.stat().st_size for path in data.glob("*.h5"))


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_half_of_the_ranks(data: Path, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid of which half of the ranks run: it says so, each has its block, and an independent reader agrees."""
    spatial = (2, 2, ranks // 2)
    workload = _workload(data, share=Share(spatial), length=Length(epochs=1))
    if ranks == 2:  # four are a launcher's
        fork_launches(monkeypatch)
    document = launch_benchmark(Request(workload), processes=ranks, hear=lambda _: None, environ={})
    assert document is not None
    assert (document.ranks, document.group_ranks) == (ranks, ranks)
    assert any(label.startswith(f"{ranks} of {2 * ranks} ranks ran") for label in document.labels)
    found = document.runs[0].figures
    assert found["samples"] == COUNT
    assert found["delivered_bytes"] == COUNT * int(np.prod(SHAPE)) * 2 // 2
    # Chunks and blocks agree: half of all chunks were asked for, each once, as the files' own index has them.
    assert found["asked_bytes"] == sum(_low_half_bytes(path) for path in data.glob("*.h5"))
    again = Document.from_dict(json.loads(document.to_json()))
    assert again.runs[0].figures == document.runs[0].figures


def _low_half_bytes(path: Path) -> int:
    """Return the stored bytes of the chunks in the lower half of the volume, by plain h5py."""
    with h5py.File(path) as file:
        (name,) = file
        dataset = file[name].id
        infos = [dataset.get_chunk_info(index) for index in range(dataset.get_num_chunks())]
        return sum(info.size for info in infos if info.chunk_offset[1] < SHAPE[1] // 2)


@pytest.mark.parametrize("loader", ["voxload", pytest.param("torch-h5py", marks=pytest.mark.long)])
def test_emulated_steps_take_their_time(loader: str, data: Path) -> None:
    """Where computing outlasts loading, throughput is that of the computing, and AU is near 1."""
    workload = _workload(
        data,
        length=Length(epochs=1),
        emulation=Emulation("sleep", "0.1"),
        supply=Supply(loader=loader),
        share=Share(batch_size=2),
    )
    run = _alone(workload).runs[0]
    (epoch,) = run.records[0].epochs
    # A step that was late is made up for by the next ones: all together they are as long as asked.
    assert sum(epoch.steps.compute) >= 0.1 * len(epoch.steps.compute) - 1e-9
    first = epoch.steps.stall[0] + epoch.steps.compute[0]
    wanted = sum(epoch.steps.compute[1:]) / (epoch.wall - first)
    assert run.figures["utilisation"] == pytest.approx(wanted)
    assert 0 < run.figures["utilisation"] <= 1


@pytest.mark.usefixtures("page_cache")
def test_cold_runs_say_so(data: Path) -> None:
    """Before a cold run nothing of the data is in memory, and the kernel sees the device read.

    Nor is anything of it in this process, which has decoded it all in earlier runs.
    """
    settle(data)
    for _ in range(2):
        _alone(_workload(data))
    document = _alone(_workload(data, coldness=Coldness("run")))
    cold = document.runs[0].cold
    if not cold.is_verified:
        pytest.skip(f"this file system keeps its own cache: {cold.text}")
    assert cold.resident <= 0.01
    assert document.runs[0].figures["device_bytes"] >= 0.98 * document.data["stored_bytes"]
    assert any(label.startswith("Page cache: cold, verified") for label in document.labels)


@pytest.mark.usefixtures("page_cache")
@pytest.mark.parametrize("loader", ["voxload", "voxload-process"])
def test_each_cold_epoch_reads_the_device(loader: str, data: Path) -> None:
    """For all that an epoch reads, in later ones too: nothing of them is read before the page cache is emptied."""
    settle(data)
    document = _alone(
        _workload(data, length=Length(epochs=3), coldness=Coldness("epoch"), supply=Supply(loader=loader))
    )
    if not document.runs[0].cold.is_verified:
        pytest.skip(f"this file system keeps its own cache: {document.runs[0].cold.text}")
    for epoch in document.runs[0].records[0].epochs:
        assert epoch.resident <= 0.01
        assert epoch.kernel.device >= epoch.counts["bytes_read"] > 0
    assert any(label.startswith("Nothing was read before its epoch began") for label in document.labels)
    assert not any(label.startswith("WARM") or "knew the seed" in label for label in document.labels)


@pytest.mark.usefixtures("page_cache")
def test_later_epochs_that_are_not_cold_say_so(data: Path, tmp_path: Path) -> None:
    """Those of a loader that keeps blocks, and those whose files worker processes have mapped."""
    cold = {"length": Length(epochs=2), "coldness": Coldness("epoch")}
    kept = _alone(_workload(data, supply=Supply(memory=1 << 26), **cold))
    assert any("not the loader's own room" in label for label in kept.labels)
    plain = tmp_path / "data"
    generate(plain, DatasetPlan((1, 32, 32, 32), "<i2", Storage(StoreFormat.NPY), samples=4))
    settle(plain)
    mapped = _alone(_workload(plain, supply=Supply(loader="torch-npy", threads=1), **cold))
    first, second = mapped.runs[0].records[0].epochs
    if not mapped.runs[0].cold.is_verified:
        pytest.skip(f"this file system keeps its own cache: {mapped.runs[0].cold.text}")
    assert first.resident <= 0.01 < second.resident
    assert any(label.startswith("WARM: before a later epoch") for label in mapped.labels)


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_it_is_said_where_later_orders_are_used(room: int, data: Path) -> None:
    """By voxload's loader, with and without a cache, where there are several epochs; not where it is forbidden."""

    def told(epochs: int, **supply: Any) -> bool:
        workload = _workload(data, length=Length(epochs=epochs, steps=1), supply=Supply(memory=room, **supply))
        return any("knew the seed" in label for label in _alone(workload).labels)

    assert told(2)
    assert not told(1)
    assert not told(2, clairvoyant=False)
    assert not (room == 0 and told(2, loader="h5py", threads=0))


@pytest.mark.long
def test_wrong_blocks_are_found(data: Path, tmp_path: Path) -> None:
    """Verified blocks are compared with what was generated; one voxel that is not is named."""
    share = Share((1, 2, 1), ranks_of=2, halo=3, boundary="periodic")
    assert not _alone(_workload(data, verify=True, share=share)).runs[0].records[0].wrong
    broken = tmp_path / "data"
    storage = Storage(StoreFormat.NPY)
    generate(broken, DatasetPlan((1, 16, 16, 16), "<i2", storage, samples=2))
    path = sorted(broken.glob("*.npy"))[1]
    volume = np.load(path)
    volume[0, 3, 4, 5] += 1
    np.save(path, volume)
    (wrong,) = _alone(_workload(broken, verify=True)).runs[0].records[0].wrong
    assert "sample 1, channel 0, voxel (3, 4, 5)" in wrong


def test_repeats_have_seeds_of_their_own(data: Path) -> None:
    """Three runs, three orders; limits of steps hold."""
    request = Request(_workload(data, length=Length(steps=3)), repeats=3)
    document = run_benchmark(request, RankGroup(None, rank=0, size=1), lambda _: None)
    assert document is not None
    assert [run.seed for run in document.runs] == [0, 1, 2]
    assert document.values("samples") == (3, 3, 3)


def test_what_does_not_fit_is_refused(data: Path) -> None:
    """Unknown loaders, more ranks than the job has, a launcher and processes at once, and blocks that nobody made."""
    with pytest.raises(UsageError, match="loader: found 'none', expected one of voxload, voxload-process"):
        _alone(_workload(data, supply=Supply(loader="none")))
    with pytest.raises(UsageError, match="4, of a job of 2"):
        fit(_workload(data, share=Share((1, 1, 2), ranks_of=2)), 4)
    with pytest.raises(UsageError, match="3 under a launcher of 2 ranks"):
        launch_benchmark(
            Request(_workload(data)), processes=3, hear=lambda _: None, environ={"RANK": "0", "WORLD_SIZE": "2"}
        )
    with pytest.raises(DataError, match="workload"):
        Workload.from_json("{}")
    with pytest.raises(UsageError, match="'magic', expected one of clairvoyant"):
        Supply(memory=1, policy="magic")
    with pytest.raises(UsageError, match="policy 'lru': found no room"):
        Supply(policy="lru")
    assert Workload.from_json(_workload(data).to_json()) == _workload(data)
    request = Request(_workload(data, length=Length(seconds=3)), repeats=2, command=("voxload", "bench"))
    assert request_of(request_json(request)) == request
    for text in ("{}", "torn", request_json(request).replace("repeats", "times")):
        with pytest.raises(DataError, match="expected JSON of Request"):
            request_of(text)


def test_results_of_versions_without_policies_are_read() -> None:
    """Words that came later have the value that all had before."""
    made = documents.document(documents.Recipe())
    older = json.loads(made.to_json())
    del older["workload"]["supply"]["policy"]
    assert Document.from_dict(older).workload == made.workload
