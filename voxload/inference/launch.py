"""launch_inference: a run of predictions on this machine, as processes of torchrun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from voxload.devices import check_there
from voxload.errors import InternalError
from voxload.grid import ProcessGrid
from voxload.inference.plan import InferencePlan
from voxload.inference.result import InferenceResult
from voxload.inference.store import remove_leftovers
from voxload.launching import Hear, launch_ranks


def launch_inference(plan: InferencePlan, *, processes: int, hear: Hear) -> InferenceResult:
    """Run `plan` on as many local processes and return its result; the processes end when this call ends.

    Raises
    ------
    UsageError
        Before anything is started when the grid does not fit the processes, or there are too few GPUs; later
        what the ranks found wrong.
    DataError
        Whatever was wrong with data or storage.
    InternalError
        When a process dies without an error of its own; the message ends with the last line it wrote.
    """
    ProcessGrid(spatial=plan.spatial, world_size=processes, rank=0)
    check_there(plan.device, ranks=processes)
    results: list[InferenceResult] = []

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "result":
            results.append(InferenceResult.from_dict({name: value for name, value in event.items() if name != "event"}))
        else:
            hear(event)

    try:
        launch_ranks("voxload.inference.worker", plan.to_json(), processes=processes, subject="inference", hear=listen)
    except BaseException:
        remove_leftovers(Path(plan.output))  # the ranks have ended, and had no time to do so
        raise
    if not results:
        raise InternalError("inference", found="ranks that ended without a result")
    return results[0]
