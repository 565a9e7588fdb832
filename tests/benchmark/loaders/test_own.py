"""voxload's own loader in a benchmark: tiers, orders foreseen, jobs of which only some ranks run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.benchmark.stored import COUNT, store
from tests.laws.bench_loader import check_loader
from tests.support.ranks import RANK, printed_by_ranks
from voxload.benchmark.loaders.own import KIND
from voxload.benchmark.loaders.protocol import Task, epoch_indices
from voxload.benchmark.loaders.volumes import dataset_of
from voxload.benchmark.workload.workload import Length, Samples, Share, Supply, Workload
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

pytestmark = pytest.mark.usefixtures("no_leaks")
ROOM = 1 << 20
EPOCHS = 5


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder of samples."""
    return store("hdf5", tmp_path_factory.mktemp("stored") / "samples")


@pytest.fixture
def whole(location: str) -> Iterator[Task]:
    """Yield the task of a rank that is all there is."""
    yield from _task(location, ProcessGrid())


@pytest.fixture
def partial(location: str) -> Iterator[Task]:
    """Yield the task of a rank of eight in two groups, of which torch.distributed knows nothing."""
    yield from _task(location, ProcessGrid((1, 2, 2), 8, 6))


def _task(location: str, grid: ProcessGrid) -> Iterator[Task]:
    workload = Workload(Samples(location), Share(grid.spatial, ranks_of=grid.world_size, batch_size=2), Length(EPOCHS))
    with closing(dataset_of(workload, grid)) as data:
        yield Task(workload, grid, data, ())


def _supplied(task: Task, **words: Any) -> Task:
    return replace(task, workload=replace(task.workload, supply=Supply(**words)))


def _read(task: Task, epochs: int = EPOCHS) -> dict[str, Any]:
    """Go through epochs and return what was counted."""
    with closing(KIND.build(task)) as loader:
        for number in range(epochs):
            indices = epoch_indices(task.workload.share, len(task.data), task.grid, number)
            assert sum(len(batch) for batch in loader.epoch(number, indices)) == len(indices)
        return dict(loader.counts())


@pytest.mark.parametrize("place", ["none", "memory", "disk"])
def test_laws_hold_with_tiers_alone_or_not(place: str, whole: Task, partial: Task, tmp_path: Path) -> None:
    """Where blocks are kept changes nothing, nor that the other ranks are absent; nothing is warned of."""
    supply: dict[str, dict[str, Any]] = {
        "none": {},
        "memory": {"memory": ROOM},
        "disk": {"disk": str(tmp_path / "tier"), "disk_bytes": 8 * ROOM},
    }
    for task in (whole, partial):
        check_loader(KIND, _supplied(task, **supply[place]), cache(lambda index, task=task: task.data[index][0]))


def test_blocks_that_are_kept_are_read_once(whole: Task) -> None:
    """Counts are totals: the storage gives each block once, memory gives it in all epochs behind."""
    counts = _read(_supplied(whole, memory=ROOM))
    nbytes = whole.data[0][0].nbytes
    assert counts["sources"]["storage"]["bytes"] == COUNT * nbytes
    assert counts["sources"]["storage"]["blocks"] == COUNT
    assert counts["sources"]["memory"]["bytes"] == (EPOCHS - 1) * COUNT * nbytes
    assert counts["sources"]["memory"]["seconds"] > 0
    once = _read(whole, epochs=1)
    assert counts["bytes_read"] == once["bytes_read"] > 0
    assert counts["bytes_decoded"] == once["bytes_decoded"] >= COUNT * nbytes
    assert once["sources"] == {}
    assert once["seconds_stalled"] > 0


def test_nothing_is_read_before_its_epoch_where_that_is_forbidden(whole: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cache, too: each epoch reads its samples, and close waits for what was begun beyond the last one."""
    reads: list[int] = []
    real = whole.data.read_into

    def read(index: int, *args: Any, **words: Any) -> Any:
        reads.append(index)
        return real(index, *args, **words)

    monkeypatch.setattr(whole.data, "read_into", read)
    _read(_supplied(whole, clairvoyant=False))
    assert sorted(reads) == sorted([*range(COUNT)] * EPOCHS)
    reads.clear()
    once = replace(whole, workload=replace(whole.workload, length=Length(1)))
    _read(once, epochs=1)  # there is no later epoch
    assert sorted(reads) == [*range(COUNT)]


def test_the_policy_says_who_keeps_a_block(whole: Task) -> None:
    """One that keeps nothing reads every block in every epoch, in the same room."""
    counts = _read(_supplied(whole, memory=ROOM, policy="staging"))
    assert counts["sources"]["storage"]["blocks"] == EPOCHS * COUNT


@pytest.mark.long
def test_ranks_of_a_whole_job_share_blocks(location: str, tmp_path: Path) -> None:
    """Two real ranks read each sample once between them, and have the others' from memory."""
    printed = printed_by_ranks("tests.benchmark.loaders.rank_own", location, tmp_path / "meeting", RANK, ranks=2)
    told = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert len(told) == 2
    used = {index for rank in told for epoch in rank["drawn"] for index in epoch}
    assert sum(rank["blocks"]["storage"] for rank in told) == len(used)
    assert sum(rank["blocks"]["peer"] for rank in told) > 0


def test_ranks_that_are_alone_share_a_node(partial: Task) -> None:
    """Each takes its part of the memory: into a smaller one fewer blocks fit, and more are read again."""
    task = _supplied(partial, memory=48 << 10)
    read = [_read(replace(task, node_ranks=ranks))["sources"]["storage"]["blocks"] for ranks in (1, 3)]
    assert read[0] < read[1]


def test_disks_of_ranks_that_are_alone_are_apart(partial: Task, tmp_path: Path) -> None:
    """They do not know of each other, and a folder's capacity is one."""
    task = replace(_supplied(partial, disk=str(tmp_path / "tier"), disk_bytes=8 * ROOM), node_ranks=2)
    _read(task, epochs=1)
    assert [each.name for each in (tmp_path / "tier").iterdir()] == ["rank6"]


def test_what_it_cannot_do_is_refused(whole: Task, partial: Task) -> None:
    """No thread to read with; peers that are not there; an order that it could not foresee."""
    with pytest.raises(UsageError, match="threads"):
        KIND.build(_supplied(whole, threads=0))
    with pytest.raises(UsageError, match="only some ranks run"):
        KIND.build(_supplied(partial, memory=ROOM, peers="tcp"))
    with closing(KIND.build(whole)) as loader:
        order = epoch_indices(whole.workload.share, len(whole.data), whole.grid, 0)
        for wrong in (order[::-1], order[:1], order[1:], (*order, 0)):
            with pytest.raises(UsageError, match="order of epoch 0"):
                loader.epoch(0, wrong)
