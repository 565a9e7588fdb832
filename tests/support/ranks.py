"""Ranks: the processes of one job, forked from a process that has imported what all of them need.

torchrun imports torch once for itself and each rank imports it again: three seconds of a core each, and as much again
for what torch imports when a network is first trained or split. Tests of what ranks do start them here, and tests of
launchers with launchers. To a rank all looks as torchrun makes it.

    python -m tests.support.ranks       forks what it is told on standard input, a line of JSON a job
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from multiprocessing.util import Finalize
from pathlib import Path

from tests.support import processes
from voxload.launch.rendezvous import LOOPBACK, store_at

ROOT = Path(__file__).parents[2]
_IMPORTED = (
    "pandas",  # pyarrow looks for it at a first table
    "pytest",
    "torch._dynamo",  # torch imports it for a first optimizer and a first DistributedDataParallel
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.nn.parallel",
    "voxload.engine",
    "voxload.inference.worker",
    "voxload.loader.dataloader",
    "voxload.readers.registry",
    "voxload.training.run",
)
_ARROWS = "jemalloc_bg_thd"
"""A thread that pyarrow's allocator begins when it is imported, and stops around a fork by itself."""
RANK = "{rank}"
"""Stands for the rank's number."""
GRACE = 30.0
"""Seconds that torchrun gives the ranks beside one that failed."""
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Job:
    """What one module or script does on several ranks."""

    target: str
    """A module's name, or a script's path."""
    arguments: tuple[str, ...]
    """What follows it."""
    environ: tuple[dict[str, str], ...]
    """All that is set for each rank."""
    folder: str
    """Where what they print goes: `OUT-RANK` and `ERR-RANK`."""
    ends_together: bool
    """Whether the others are told to end when one fails."""


@dataclass(frozen=True)
class Ended:
    """How a rank ended."""

    status: int
    """Of its process."""
    out: str
    """What it printed."""
    errors: str
    """What it said."""


def run_ranks(target: str | Path, *arguments: str | Path, ranks: int, ends_together: bool = True) -> list[Ended]:
    """Run a module or a script on several ranks of one job, each with one thread; return how each ended.

    `RANK` among the arguments is each rank's number. When one fails, the others are told to end, as torchrun does.
    """
    store = store_at(LOOPBACK, ranks, timeout=timedelta(seconds=processes.LIMIT))
    with tempfile.TemporaryDirectory() as folder:
        environ = tuple(_environ(rank, ranks, store.port) for rank in range(ranks))
        job = Job(str(target), tuple(map(str, arguments)), environ, folder, ends_together)
        statuses = _forker().statuses(job)
        found = []
        for rank, status in enumerate(statuses):
            out, errors = (Path(folder, f"{kind}-{rank}").read_text(errors="replace") for kind in ("OUT", "ERR"))
            found.append(Ended(status, out, errors))
    return found


def printed_by_ranks(target: str | Path, *arguments: str | Path, ranks: int) -> str:
    """Return what all ranks printed, one after the other; fail where one fails."""
    ended = run_ranks(target, *arguments, ranks=ranks)
    statuses = [rank.status for rank in ended]
    assert not any(statuses), f"{statuses}\n" + "\n".join(f"{rank.out}\n{rank.errors}"[-3000:] for rank in ended)
    return "".join(rank.out for rank in ended)


def _environ(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Return what torchrun sets for a rank."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1}
    numbers |= {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "ROLE_WORLD_SIZE": ranks, "MASTER_PORT": port}
    numbers |= {"TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0}
    words = {"MASTER_ADDR": LOOPBACK, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    return os.environ | _ONE_THREAD | words | {name: str(number) for name, number in numbers.items()}


class _Forker:
    """The process that forks; one for each process of tests, from its first job until its end."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.ranks"],
            cwd=ROOT,
            env=os.environ | _ONE_THREAD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.keep(self._process.pid, self._process.stdin, self._process.stdout)
        Finalize(None, self.close, exitpriority=10)

    def statuses(self, job: Job) -> list[int]:
        """Return how each rank ended; whatever ends this call, no rank outlives it."""
        words, answers = self._process.stdin, self._process.stdout
        assert words is not None
        assert answers is not None
        try:
            words.write(json.dumps(asdict(job)) + "\n")
            words.flush()
            is_there, _, _ = select.select([answers], [], [], processes.LIMIT)
            assert is_there, f"{job.target}: ranks hang"
            ended: list[int] = json.loads(answers.readline())
        except BaseException:
            self.close()
            raise
        processes.end(processes.descendants(self._process.pid))
        return ended

    @property
    def is_alive(self) -> bool:
        """Whether it forks still."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it, and the ranks that are left."""
        if self.is_alive:
            processes.end(processes.descendants(self._process.pid) | {self._process.pid})
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


_made: list[_Forker] = []


def _forker() -> _Forker:
    if not _made or not _made[-1].is_alive:
        _made.append(_Forker())
    return _made[-1]


def _serve() -> None:
    """Fork the ranks of one job after the other; in a rank this does not return."""
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else each collection of each rank goes through all that was imported
    # From 3.12 on Python warns of threads at a fork, in what a rank says; which ones there are is asked below.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    # A rank leaves by the interpreter's own end, through the frames of this function: nothing here is to be undone.
    while line := sys.stdin.readline():
        words = json.loads(line)
        job = Job(**words)
        threads = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
        assert [name for name in threads if name != _ARROWS] == ["python"], (
            f"threads of a process that forks: {threads}"
        )
        ranks = []
        for rank in range(len(job.environ)):
            pid = os.fork()
            if not pid:
                _be(job, rank)
                sys.exit()
            ranks.append(pid)
        sys.stdout.write(json.dumps(_ended(ranks, ends_together=job.ends_together)) + "\n")
        sys.stdout.flush()


def _be(job: Job, rank: int) -> None:
    """Be a rank: with its environment and its output, run its module or script."""
    os.setsid()
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, f"{job.folder}/OUT-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, f"{job.folder}/ERR-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(job.environ[rank])
    tempfile.tempdir = None
    sys.argv = [job.target, *(str(rank) if word == RANK else word for word in job.arguments)]
    if job.target.endswith(".py"):
        sys.path[0] = str(Path(job.target).parent)
        runpy.run_path(job.target, run_name="__main__")
    else:
        runpy.run_module(job.target, run_name="__main__", alter_sys=True)


def _ended(ranks: list[int], *, ends_together: bool) -> list[int]:
    """Return how processes ended; together: when one fails, the others are told to end, and made to."""
    found: dict[int, int] = {}
    deadline: float | None = None
    while len(found) < len(ranks):
        pid, status = os.waitpid(-1, 0 if deadline is None else os.WNOHANG)
        if pid:
            found[pid] = os.waitstatus_to_exitcode(status)
            if found[pid] and ends_together and deadline is None:
                deadline = time.monotonic() + GRACE
                _tell(set(ranks) - set(found), signal.SIGTERM)
        elif deadline is not None and time.monotonic() > deadline:
            _tell(set(ranks) - set(found), signal.SIGKILL)
        else:
            time.sleep(0.01)
    return [found[pid] for pid in ranks]


def _tell(pids: set[int], what: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, what)


if __name__ == "__main__":
    _serve()
