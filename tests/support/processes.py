"""Processes that tests start: each has one generous limit, and ends with all that it started.

The limit decides nothing: it only ends what hangs. VOXLOAD_TEST_PATIENCE multiplies it, for machines that are slower
still. A process that outlives its parent comes to this one (Linux's child subreaper), so that it can be found.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import IO, Any

LIMIT = 600.0 * float(os.environ.get("VOXLOAD_TEST_PATIENCE", "1"))
"""Seconds after which something hangs."""
_kept = set[int]()
kept_files = set[str]()
"""Names of what is open for as long as the processes that are kept."""
_PR_SET_CHILD_SUBREAPER = 36
"""prctl(2)."""
_THREADS = 17
"""Place of their number in /proc/PID/stat, counted from behind the command's name (proc_pid_stat(5))."""


def adopt() -> None:
    """Become the parent of processes whose own parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    check: bool = True,
    capture_output: bool = False,
    text: bool = False,
    input: Any = None,  # noqa: A002 - as subprocess.run has it
    **words: Any,
) -> subprocess.CompletedProcess[Any]:
    """Do as `subprocess.run`; whatever ends it, nothing that the command started outlives it."""
    if capture_output:
        words |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        words["stdin"] = subprocess.PIPE
    with started(command, text=text, **words) as process:
        output, errors = process.communicate(input, timeout=LIMIT)
    done = subprocess.CompletedProcess(command, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


@contextmanager
def started(
    command: Sequence[str | os.PathLike[str]], *, is_apart: bool = True, **words: Any
) -> Iterator[subprocess.Popen[Any]]:
    """Start a command; it is killed with all that it started when the block ends.

    It is a session of its own, to which systems give a share of the cores of its own, too; unless it is not `is_apart`.
    """
    before = descendants()
    place: dict[str, Any] = {"start_new_session": True} if is_apart else {"process_group": 0}
    process = subprocess.Popen(command, **place, **words)
    try:
        yield process
    finally:
        _end(process, before)


def _end(process: subprocess.Popen[Any], before: set[int]) -> None:
    if process.poll() is None:
        end(_stopped(process.pid))
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError, ValueError):
                pipe.close()
    end({pid for pid in descendants() - before if _session(pid) == process.pid})


def descendants(root: int | None = None) -> set[int]:
    """Return the processes below one, this one by default; those that ended and wait for a look are not among them.

    Those that multiprocessing keeps for as long as this process lives are not either, nor those of `keep`.
    """
    kept = {forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid} | _kept  # type: ignore[attr-defined]
    found, left = set[int](), [os.getpid() if root is None else root]
    while left:
        for child in _children(left.pop()):
            if child not in found:
                left.append(child)
                found.add(child)
    return {pid for pid in found - kept if _is_alive(pid)}


def keep(pid: int, *pipes: IO[Any] | None) -> None:
    """Let a process of the whole run of tests be no descendant; whoever started it ends it. Its children are some.

    `pipes` to it are open as long as it.
    """
    _kept.add(pid)
    kept_files.update(os.readlink(f"/proc/self/fd/{pipe.fileno()}") for pipe in pipes if pipe is not None)  # noqa: PTH115 - a name


def end(pids: set[int]) -> None:
    """Kill processes and return when they are gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while any(map(_is_alive, pids)):
        time.sleep(0.01)


def _stopped(root: int) -> set[int]:
    """Stop a process and all below it, and return them.

    Each is stopped before its children are looked for: one that runs may start another in between, which nobody ends.
    """
    found, left = set[int](), [root]
    while left:
        pid = left.pop()
        found.add(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            while not _is_still(pid):
                time.sleep(0.001)
        left += set(_children(pid)) - found
    return found


def ended(pids: set[int], *, patience: float) -> set[int]:
    """Return those of `pids` that do not end by themselves."""
    until = time.monotonic() + patience
    while left := set(filter(_is_alive, pids)):
        if time.monotonic() > until:
            return left
        time.sleep(0.01)
    return set()


def told(pid: int) -> str:
    """Return a process's command line."""
    try:
        return (
            f"{pid} {Path(f'/proc/{pid}/cmdline').read_bytes().replace(bytes(1), b' ').decode(errors='replace')[:200]}"
        )
    except OSError:
        return f"{pid} (gone)"


def _children(pid: int) -> list[int]:
    found = list[int]()
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - this runs around every test
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as children:  # noqa: PTH123 - as above
                found += map(int, children.read().split())
    return found


def _is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that ended and was not waited for does not.

    Its files, and locks on them, are there until its last thread has ended, be the first one a zombie before.
    """
    fields = _stats(pid)
    return bool(fields) and (fields[0] not in "ZX" or int(fields[_THREADS]) > 1)


def _is_still(pid: int) -> bool:
    """Tell whether no thread of a process runs."""
    with suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - as in `_children`
        return all(_stat(f"{pid}/task/{thread}", 0) in (None, "T", "t", "Z", "X") for thread in threads)
    return True


def _session(pid: int) -> int | None:
    session = _stat(pid, 3)
    return None if session is None else int(session)


def _stat(pid: int | str, field: int) -> str | None:
    """Return a field of /proc/PID/stat, or of PID/task/THREAD, counted from behind the command's name."""
    fields = _stats(pid)
    return fields[field] if fields else None


def _stats(pid: int | str) -> list[str]:
    """Return all of them; none where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - this runs around every test
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return []
