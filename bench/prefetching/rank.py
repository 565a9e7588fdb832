"""Rank: a request that four processes carry out, each of which begins with a sample that is no part of the data set.

``python -m bench.prefetching.rank PLAN`` is one of them, under torchrun: it reads that sample, and then does what ranks
of ``voxload bench run`` do. What a process does once is no part of loading: it imports readers, and compiles casts.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import voxload
from bench.prefetching.forecast import RANKS, SPATIAL
from voxload.benchmark.measure.document import Document
from voxload.benchmark.run import launch
from voxload.benchmark.run.job import Request
from voxload.launch.processes import launch_ranks, run_rank
from voxload.readers.remote import obstoreobjects  # noqa: F401 - imported before the clock runs, for all contenders

_MODULE = "bench.prefetching.rank"


def run_ranks(request: Request, *, warm_up: Path) -> Document:
    """Carry out a request by `RANKS` processes and return its document.

    Each of them first reads a sample of the data set `warm_up`, which is on this machine. Raises VoxloadError: what a
    rank raised, or InternalError where one died.
    """
    documents: list[Document] = []

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "result":
            documents.append(Document.from_dict(event["document"]))

    plan = json.dumps({"request": launch.request_json(request), "warm_up": str(warm_up)})
    launch_ranks(_MODULE, plan, processes=RANKS, subject=request.workload.supply.loader, hear=hear)
    (document,) = documents
    return document


def work(text: str) -> None:
    """Be one of the processes, with the text of the plan."""
    plan = json.loads(text)
    with closing(voxload.VolumeDataset(plan["warm_up"], grid=voxload.ProcessGrid.from_env(SPATIAL))) as data:
        _ = data[0]
    launch.work(plan["request"])


if __name__ == "__main__":
    sys.exit(run_rank(_MODULE, sys.argv[1:], work))
