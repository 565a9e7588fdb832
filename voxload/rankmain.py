"""run_rank: what the process of a rank does around its work: it reads a plan and tells in lines of JSON what happens.

`voxload.launching` starts such processes and hears them.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from voxload.errors import UsageError, VoxloadError


def run_rank(name: str, arguments: Sequence[str], work: Callable[[str], object]) -> int:
    """Call ``work(plan)`` with the text of the file that is the only argument; return the process's exit status.

    It is 0, 1 when the work failed, 2 when the plan was wrong. A rank that fails writes one line with its error, and
    one that warns of a run that goes on writes its warning.
    """
    if len(arguments) != 1:
        sys.stderr.write(f"{name}: expected one argument, the path of a plan\n")
        return 2
    show = warnings.showwarning

    def tell(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, RuntimeWarning):  # of a run that goes on; other kinds are for those who write code
            emit({"event": "warning", "message": str(message)})
        else:
            show(message, category, *where, **more)

    warnings.showwarning = tell
    try:
        work(Path(arguments[0]).read_text(encoding="utf-8"))
    except VoxloadError as error:
        emit({"event": "error", "is_usage": isinstance(error, UsageError), "message": str(error)})
        return 2 if isinstance(error, UsageError) else 1
    return 0


def emit(event: dict[str, Any]) -> None:
    """Write one event as a line of JSON to standard output, at once."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()
