"""run_benchmark: a workload carried out by the ranks of a job, and the document that rank 0 makes of it."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import prod
from typing import Any

import torch
from torch import Tensor

from voxload.benchmark.cold.coldness import Cooling, pressure
from voxload.benchmark.cold.datafiles import DataFiles, data_files
from voxload.benchmark.generate.generated import Truth
from voxload.benchmark.loaders import registry
from voxload.benchmark.loaders.protocol import LoaderKind, Task
from voxload.benchmark.loaders.volumes import dataset_of, volumes_of
from voxload.benchmark.measure.document import Cold, Document, Run
from voxload.benchmark.measure.figures import figures
from voxload.benchmark.measure.rank_group import RankGroup, as_torch_job
from voxload.benchmark.measure.record import Record
from voxload.benchmark.run.hosts import describe_host
from voxload.benchmark.run.labels import data_facts, labels
from voxload.benchmark.run.rank import Check, RankRun, RunContext, Tell
from voxload.benchmark.workload.workload import Workload
from voxload.errors import UsageError
from voxload.grid import ProcessGrid


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a job."""

    workload: Workload
    repeats: int = 1
    """Runs, each with a seed of its own, one more than the last; the loader is built anew for each."""
    command: tuple[str, ...] = ()
    """The command line, for the document."""

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise UsageError("repeats", found=str(self.repeats), expected="1 or more")


def fit(workload: Workload, ranks: int) -> Workload:
    """Return a workload for as many ranks as there are; pure.

    A last sample group of which only some ranks run is one of a larger job: the others are absent, and it says so.
    """
    share = workload.share
    whole = prod(share.spatial)
    wanted = share.ranks_of or -(-ranks // whole) * whole
    if wanted < ranks:
        raise UsageError("ranks", found=f"{ranks}, of a job of {wanted}", expected=f"{wanted} or fewer")
    return replace(workload, share=replace(share, ranks_of=wanted))


def run_benchmark(request: Request, shared: RankGroup, tell: Tell) -> Document | None:
    """Run a workload as one rank of the job; every rank calls it, and rank 0 returns the document.

    Parameters
    ----------
    request
        What to run; equal on all ranks.
    shared
        The ranks.
    tell
        Hears on rank 0 of what happens: ``run`` at the beginning of each repetition, ``step`` after each step.

    Raises
    ------
    UsageError
        When workload, data set, loader and ranks do not fit each other.
    VoxloadError
        What data and storage raise.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    workload = fit(request.workload, shared.size)
    grid = ProcessGrid(workload.share.spatial, workload.share.ranks_of, shared.rank)
    kind = registry.named(workload.supply.loader)
    registry.prepare(kind)
    files = data_files(workload.samples)
    nodes = shared.gather(socket.gethostname(), str)
    leads = nodes.index(nodes[shared.rank]) == shared.rank
    hush: Tell = tell if shared.rank == 0 else _hush
    with as_torch_job(shared, is_whole=shared.size == grid.world_size), closing(dataset_of(workload, grid)) as data:
        volumes = () if getattr(kind, "reads_data", False) else volumes_of(data)
        task = Task(workload, grid, data, volumes, node_ranks=nodes.count(nodes[shared.rank]))
        job = _Job(task, kind, shared, files=files, leads=leads)
        with pressure(workload.coldness, leads=leads):
            runs = [job.run(number, hush) for number in range(request.repeats)]
        hosts = shared.gather(
            describe_host(workload.samples.location, kind.needs) if leads else None, dict[str, Any] | None
        )
        if shared.rank:
            return None
        return _document(request, task, runs, hosts=[host for host in hosts if host], files=files, started=started)


class _Job:
    """What all repetitions have in common, on one rank."""

    def __init__(self, task: Task, kind: LoaderKind, shared: RankGroup, *, files: DataFiles, leads: bool) -> None:
        self._task, self._kind, self._shared = task, kind, shared
        self._files, self._leads = files, leads

    def run(self, number: int, tell: Tell) -> Run:
        """Return one repetition, with the records of all ranks."""
        workload = self._task.workload
        share = replace(workload.share, seed=workload.share.seed + number)
        task = replace(self._task, workload=replace(workload, share=share))
        tell({"event": "run", "number": number})
        cooling = Cooling(workload.coldness, self._files, self._shared, leads=self._leads)
        check = checker(task) if workload.verify else None
        record = RankRun(task, RunContext(self._kind, self._shared, cooling, check)).run(tell)
        gathered = self._shared.gather((record, cooling.first), tuple[Record, Cold | None])
        records = tuple(each for each, _ in gathered)
        cold = next(each for _, each in gathered if each is not None)
        found = figures(records, group_size=task.grid.group_size, warmup=workload.length.warmup)
        return Run(share.seed, cold, records, found.as_dict())


def _document(
    request: Request,
    task: Task,
    runs: Sequence[Run],
    *,
    hosts: Sequence[dict[str, Any]],
    files: DataFiles,
    started: str,
) -> Document:
    ranks = len(runs[0].records)
    data = data_facts(task, files)
    return Document(
        workload=task.workload,
        command=request.command,
        started=started,
        hosts=tuple(hosts),
        data=data,
        ranks=ranks,
        group_ranks=min(task.grid.group_size, ranks),
        labels=labels(task, runs, data=data, hosts=hosts),
        runs=tuple(runs),
    )


def checker(task: Task) -> Check:
    """Return what compares blocks with what was generated; raises NotFoundError where voxload did not generate them."""
    truth = Truth.of(task.workload.samples.location)
    data, boundary = task.data, task.workload.share.boundary

    def check(index: int, block: Tensor) -> str | None:
        box = data.box(truth.plan.spatial)
        return truth.check(data.sample_ids[index], box, _on_host(block), boundary=boundary)

    return check


def _on_host(block: Tensor) -> Any:
    return block.detach().to(torch.device("cpu")).numpy()


def _hush(event: dict[str, Any]) -> None:
    """Say nothing: rank 0 speaks for all."""
