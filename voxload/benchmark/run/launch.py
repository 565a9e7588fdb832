"""Launch: a benchmark on this machine, as ranks that torchrun starts or that were launched already.

One rank of a benchmark: ``python -m voxload.benchmark.run.launch REQUEST``, under torchrun, mpiexec or srun. Rank 0
writes one line of JSON after each step, and at the end one with the document.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from voxload.benchmark.measure.document import Document
from voxload.benchmark.measure.rank_group import rank_group
from voxload.benchmark.run.job import Request, fit, run_benchmark
from voxload.errors import InternalError, UsageError
from voxload.grid import launched_as
from voxload.launch.processes import Hear, emit, launch_ranks, run_rank
from voxload.launch.wire import decode, encode


def launch_benchmark(
    request: Request, *, processes: int, hear: Hear, environ: Mapping[str, str] | None = None
) -> Document | None:
    """Run a benchmark; return its document, None on ranks other than the first of a job that was launched already.

    Parameters
    ----------
    request
        What to run.
    processes
        Processes to start on this machine. Under torchrun, mpiexec or srun every process calls this and none is
        started; it must be 1 then.
    hear
        Hears of ``run`` and ``step`` events.
    environ
        Where a launcher's variables are looked for; the process's own by default.

    Raises
    ------
    UsageError
        When workload, data set, loader and ranks do not fit each other.
    DataError
        Whatever was wrong with data or storage.
    InternalError
        When a process dies.
    """
    _, launched = launched_as(os.environ if environ is None else environ)
    if launched > 1 and processes > 1:
        raise UsageError(
            "--nproc", found=f"{processes} under a launcher of {launched} ranks", expected="one of the two"
        )
    if launched > 1 or processes == 1:
        with rank_group(environ) as shared:
            return run_benchmark(request, shared, hear)
    fit(request.workload, processes)
    documents: list[Document] = []

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "result":
            documents.append(Document.from_dict(event["document"]))
        else:
            hear(event)

    launch_ranks(
        "voxload.benchmark.run.launch", request_json(request), processes=processes, subject="benchmark", hear=listen
    )
    if not documents:
        raise InternalError("benchmark", found="ranks that ended without a result")
    return documents[0]


def work(text: str) -> None:
    """Run the request that `request_json` wrote, as one rank of the job."""
    with rank_group() as shared:
        document = run_benchmark(request_of(text), shared, emit)
        if document is not None:
            emit({"event": "result", "document": json.loads(document.to_json())})


def request_json(request: Request) -> str:
    """Return a request as JSON."""
    return encode(request).decode()


def request_of(text: str) -> Request:
    """Return the request that `request_json` wrote; raises DataError on anything else."""
    return decode(text.encode(), Request)


if __name__ == "__main__":
    sys.exit(run_rank("voxload.benchmark.run.launch", sys.argv[1:], work))
