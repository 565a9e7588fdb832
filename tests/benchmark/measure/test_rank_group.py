"""Ranks meet under torchrun, under mpiexec, and alone."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.ranks import printed_by_ranks
from voxload.benchmark.measure.rank_group import as_torch_job, rank_group

RANK = """
import json, os, sys
from typing import Any
import torch, torch.distributed as dist
from voxload.benchmark.measure.rank_group import as_torch_job, rank_group
with rank_group() as shared:
    seen = [shared.gather(shared.rank * 10, int), shared.first("mine" if shared.rank == 0 else "other", str)]
    long = shared.gather("x" * (9 * 2**20) if shared.rank == 1 else "", str)  # more than torch's store takes at once
    seen.append([len(each) for each in long])
    for _ in range(20):
        shared.wait()
    with as_torch_job(shared, is_whole=False):
        seen.append(dist.is_initialized())
    with as_torch_job(shared, is_whole=True):
        total = torch.tensor([shared.rank])
        dist.all_reduce(total)
        seen.append(int(total))
    all_seen = shared.gather(seen, list[Any])
    if shared.rank == 0:
        print("SEEN " + json.dumps(all_seen), flush=True)
"""
COMMANDS = {
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"],
    "mpiexec": [str(Path(sys.executable).with_name("mpiexec")), "-n", "3", sys.executable],
}


@pytest.mark.parametrize(
    "launcher", ["torchrun's environment", *(pytest.param(name, marks=pytest.mark.long) for name in COMMANDS)]
)
def test_ranks_meet(launcher: str, tmp_path: Path) -> None:
    """Three ranks hear each other, and become a job of torch's only when they are all of it."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    if launcher in COMMANDS:
        command, environ = [*COMMANDS[launcher], str(script)], {**os.environ, "OMP_NUM_THREADS": "1"}
        printed = processes.run(command, capture_output=True, text=True, check=True, env=environ).stdout
    else:
        printed = printed_by_ranks(script, ranks=3)
    (line,) = (line for line in printed.splitlines() if line.startswith("SEEN "))
    assert json.loads(line.removeprefix("SEEN ")) == [[[0, 10, 20], "mine", [0, 9 * 2**20, 0], False, 3]] * 3


def test_one_process_meets_itself() -> None:
    """Without a launcher there is nobody to wait for."""
    with rank_group({}) as shared, as_torch_job(shared, is_whole=True):
        shared.wait()
        assert (shared.gather(7, int), shared.first("x", str)) == ([7], "x")
