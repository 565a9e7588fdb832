"""Ranks on this machine: processes of torchrun that carry out a plan and tell of it in lines of JSON.

launch_ranks: a plan carried out by processes of torchrun on this machine, and what they have to say. They meet at
loopback, and talk over it: nobody else can reach them (`voxload.launch.torchrun`). The processes run a module that
calls `voxload.launch.processes.run_rank`: each line that they write is an event as JSON.

run_rank: what the process of a rank does around its work: it reads a plan and tells in lines of JSON what happens.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any

from voxload.errors import DataError, InternalError, UsageError, VoxloadError
from voxload.grid import launched_as
from voxload.text import shown

Hear = Callable[[dict[str, Any]], None]
"""Hears of each event but warnings and errors."""

_TORCHRUN = re.compile(r"[EWI]\d{4} .*torch/distributed/elastic/")
"""What torchrun's own lines about a rank that failed begin with."""
_SIGNAL = re.compile(r"Signal \d+ \(SIG(?!TERM)")
"""What torchrun says of a rank that was ended, but by torchrun itself."""
_ERROR = re.compile(r"(\[rank\d+\]: )?[\w.]+(Error|Exception|Interrupt)\b")
"""What the last line of a traceback begins with."""
_NOTHING: Mapping[str, str] = MappingProxyType({})
_STOP_SECONDS = 30
"""Time for torchrun to end its processes before they are killed: it gives them as much itself."""


def launch_ranks(
    module: str,
    plan: str,
    *,
    processes: int,
    subject: str,
    hear: Hear,
    environ: Mapping[str, str] = _NOTHING,
    started: Callable[[subprocess.Popen[str]], object] | None = None,
) -> None:
    """Run a module on as many local processes, with the path of a file that holds `plan`; they end with this call.

    They end with this process, too, whatever ends it: torchrun's standard input is a pipe that this process holds.

    Parameters
    ----------
    module
        What ``python -m`` runs on each rank.
    plan
        Text of the plan.
    processes
        Ranks.
    subject
        What an error is about where a process dies without one.
    hear
        Hears of the ranks' events, in the order in which they come.
    environ
        What ranks find in their environment besides.
    started
        Is given torchrun's process, for another thread to end it.

    Raises
    ------
    VoxloadError
        The first that a rank told of: UsageError, or DataError for whatever was wrong with data or storage.
    InternalError
        When a process dies without an error of its own; the message ends with the last line it wrote.
    """
    with tempfile.TemporaryDirectory(prefix="voxload-plan-") as folder:
        written, log_path = Path(folder) / "plan.json", Path(folder) / "log"
        written.write_text(plan, encoding="utf-8")
        with log_path.open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                _command(module, written, processes),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(processes) | dict(environ),
                text=True,
                start_new_session=True,
            )
            try:
                if started is not None:
                    started(process)
                error = _follow(process.stdout or (), hear)
                status = process.wait()
            finally:
                _stop(process)
        if error is not None:
            raise error
        if status:
            last = _last_words(log_path.read_text(encoding="utf-8"))
            raise InternalError(subject, found=f"a process that died: {last}", remedy="see its memory and signals")


def refuse_processes(processes: int) -> tuple[int, int]:
    """Return rank and world size that a launcher gave; raise UsageError where processes are to be started besides."""
    rank, world_size = launched_as(os.environ)
    if processes > 1:
        raise UsageError(
            "--nproc",
            found=f"{processes} under a launcher of {world_size} ranks",
            expected="one of the two",
            remedy="leave --nproc out, or unset the launcher's variables",
        )
    return rank, world_size


def _command(module: str, plan: Path, processes: int) -> list[str]:
    runner = [sys.executable, "-m", "voxload.launch.torchrun", "--end-with-input", f"--nproc-per-node={processes}"]
    return [*runner, "-m", module, os.fspath(plan)]


def cores_of(processes: int) -> int:
    """Return how many cores each of so many processes has to itself, at least 1."""
    return max(1, len(os.sched_getaffinity(0)) // processes)


def _environment(processes: int) -> dict[str, str]:
    """Share the cores among the processes and let gloo listen at loopback, unless the caller has decided."""
    threads = cores_of(processes)
    # PET_ ones are words to torchrun, and may name another rendezvous.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    return {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo", **kept}


def _follow(lines: Iterable[str], hear: Hear) -> VoxloadError | None:
    """Pass the ranks' events and warnings on until their output ends; return the first error among them."""
    first: VoxloadError | None = None
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # not one of ours: a library's own words
        if not isinstance(event, dict):
            continue
        kind = event.get("event")
        if kind == "warning":
            warnings.warn(shown(event["message"], keep="\n\t"), RuntimeWarning, stacklevel=4)
        elif kind == "error":
            first = first or (UsageError if event["is_usage"] else DataError)(event["message"])
        elif kind is not None:
            hear(event)
    return first


def _last_words(log: str) -> str:
    r"""Return the first error that ranks wrote: those that lose a neighbour by it fail behind it. Else their last line.

    >>> _last_words("[rank1]: ValueError: no\n[rank0]: RuntimeError: Connection closed by peer")
    '[rank1]: ValueError: no'
    >>> _last_words("half a word\nE1130 07:22:50 1 torch/distributed/elastic/multiprocessing/api.py: failed")
    'half a word'
    """
    lines = [line.rstrip() for line in log.splitlines() if line.strip()]
    own = list(takewhile(lambda line: not _TORCHRUN.match(line), lines))
    # A rank that a signal ended wrote no error: torchrun tells which signal that was.
    signals = [line for line in lines if _SIGNAL.search(line)]
    errors = [line for line in own if _ERROR.match(line)] or signals
    return (errors[:1] or (own or lines or ["nothing written"])[-1:])[0].strip()


def _stop(process: subprocess.Popen[str]) -> None:
    """End the processes that still run; torchrun passes the signal on to its own."""
    if process.stdout is not None:
        process.stdout.close()
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.stdin is not None:  # now: torchrun takes its end for another signal, amid what it does about the first
        process.stdin.close()


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
