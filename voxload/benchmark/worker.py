"""One rank of a benchmark: ``python -m voxload.benchmark.worker REQUEST``, under torchrun, mpiexec or srun.

Rank 0 writes one line of JSON after each step, and at the end one with the document.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from voxload.benchmark.job import Request, run_benchmark
from voxload.benchmark.meeting import meeting
from voxload.benchmark.workload import Workload
from voxload.documents import parse_json
from voxload.errors import DataError
from voxload.rankmain import emit, run_rank


def work(text: str) -> None:
    """Run the request that `request_json` wrote, as one rank of the job."""
    with meeting() as shared:
        document = run_benchmark(request_of(text), shared, emit)
        if document is not None:
            emit({"event": "result", "document": json.loads(document.to_json())})


def request_json(request: Request) -> str:
    """Return a request as JSON."""
    workload = json.loads(request.workload.to_json())
    return json.dumps({"workload": workload, "repeats": request.repeats, "command": list(request.command)})


def request_of(text: str) -> Request:
    """Return the request that `request_json` wrote; raises DataError on anything else."""
    try:
        values: dict[str, Any] = parse_json(text)
        return Request(Workload.from_dict(values["workload"]), values["repeats"], tuple(values["command"]))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError("benchmark request", found=str(error), expected="JSON as request_json writes it") from error


if __name__ == "__main__":
    sys.exit(run_rank("voxload.benchmark.worker", sys.argv[1:], work))
