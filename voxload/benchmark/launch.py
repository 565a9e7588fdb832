"""launch_benchmark: a benchmark on this machine, as processes of torchrun, or as ranks that were launched already."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from voxload.benchmark.document import Document
from voxload.benchmark.job import Request, fit, run_benchmark
from voxload.benchmark.meeting import meeting
from voxload.benchmark.worker import request_json
from voxload.errors import InternalError, UsageError
from voxload.grid import launched_as
from voxload.launching import Hear, launch_ranks


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
        with meeting(environ) as shared:
            return run_benchmark(request, shared, hear)
    fit(request.workload, processes)
    documents: list[Document] = []

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "result":
            documents.append(Document.from_dict(event["document"]))
        else:
            hear(event)

    launch_ranks(
        "voxload.benchmark.worker", request_json(request), processes=processes, subject="benchmark", hear=listen
    )
    if not documents:
        raise InternalError("benchmark", found="ranks that ended without a result")
    return documents[0]
