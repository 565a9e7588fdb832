"""world: combinations run by real processes, and their worst errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.support.splitting.combination import Combination
from tests.support.splitting.reference import reference

_ROOT = Path(__file__).parents[3]


def run_world(combinations: Sequence[Combination], folder: Path, *, limit: float) -> dict[str, dict[str, float]]:
    """Train each of `combinations` on as many processes as it has ranks; return the worst errors over its ranks.

    Parameters
    ----------
    combinations
        What to train.
    folder
        An empty folder for what the processes exchange.
    limit
        Seconds for all of them.

    Raises
    ------
    RuntimeError
        When a process fails or the time is up; with the end of its output.
    """
    deadline = time.monotonic() + limit
    found: dict[str, dict[str, float]] = {}
    for world in sorted({how.world for how in combinations}):
        # Processes of their own for each number of ranks: torch remembers groups that are gone.
        inner = folder / f"world-{world}"
        inner.mkdir()
        found |= _run([how for how in combinations if how.world == world], inner, deadline)
    return found


def _run(combinations: Sequence[Combination], folder: Path, deadline: float) -> dict[str, dict[str, float]]:
    """Train combinations of one number of ranks."""
    prepare(combinations, folder)
    ranks = combinations[0].world
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)}
    processes = [_start(rank, ranks, folder, environ) for rank in range(ranks)]
    try:
        for rank, process in enumerate(processes):
            status = process.wait(max(deadline - time.monotonic(), 0.1))
            if status:
                text = (folder / f"output-{rank}").read_text(errors="replace")
                raise RuntimeError(f"rank {rank} ended with status {status}: {text[-2000:]}")
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{len(combinations)} combinations on {ranks} ranks: not done in time") from error
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return collect(combinations, folder)


def prepare(combinations: Sequence[Combination], folder: Path) -> None:
    """Leave what the ranks are to train, and what one process makes of it, in the folder that they are given."""
    torch.save([(how, reference(how.network, _kind(how))) for how in combinations], folder / "combinations.pt")


def collect(combinations: Sequence[Combination], folder: Path) -> dict[str, dict[str, float]]:
    """Return the worst errors over the ranks, which have left theirs in the folder."""
    ranks = combinations[0].world
    reports = [json.loads((folder / f"report-{rank}.json").read_text()) for rank in range(ranks)]
    return {str(how): _worst([report[str(how)] for report in reports]) for how in combinations}


def _kind(how: Combination) -> str:
    """Return the mode that one process runs: only accumulation makes other numbers."""
    return how.mode if how.mode == "accumulation" else "plain"


def _start(rank: int, ranks: int, folder: Path, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start one rank; its output goes to a file."""
    command = [sys.executable, "-m", "tests.support.splitting.rank", str(rank), str(ranks), str(folder)]
    with (folder / f"output-{rank}").open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environ, cwd=_ROOT)


def _worst(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: max(row[name] for row in rows) for name in rows[0]}
