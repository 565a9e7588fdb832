"""Blocks by one-sided gets: the laws of peers under mpiexec, and what becomes of fewer threads and absent ranks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.ranks import printed_by_ranks

HERE = Path(__file__).parent
MPIEXEC = Path(sys.executable).parent / "mpiexec"
LAUNCHERS = ("RANK", "WORLD_SIZE", "PMI", "OMPI", "SLURM", "LOCAL_", "GROUP_", "TORCHELASTIC")

pytestmark = pytest.mark.skipif(not MPIEXEC.exists(), reason="needs the mpich wheel")

ONE_RANK = """
import os, sys
for name in [*os.environ]:  # as a user's shell has it
    if name.startswith(tuple(sys.argv[1].split())):
        del os.environ[name]
from contextlib import closing
from concurrent.futures import ThreadPoolExecutor
import mpi4py
import numpy as np
from voxload.cache.protocol import BlockKey
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.peer.mpi import MpiPeers
from voxload.cache.protocol import Answer
from voxload.errors import UsageError
from voxload.geometry import Boundary, Box

block = np.arange(60_000, dtype=np.int16).reshape(3, 20, 20, 50)
key = BlockKey("data", "sample", "x", Box((0, 0, 0), block.shape[1:]), Boundary.ZERO)

def work(peers):
    out = np.zeros_like(block)
    return peers.get_into(0, key, out, wait=0) is Answer.GOT and bool((out == block).all())

def main():
    from mpi4py import MPI
    with closing(MemoryTier(2**22, job="test-peers")) as memory:
        memory.put(key, block)
        try:
            with closing(MpiPeers(MPI.COMM_SELF, memory.memory)) as peers, ThreadPoolExecutor(4) as pool:
                print("serialized", all(pool.map(work, [peers] * 40)), flush=True)
        except UsageError as error:
            print("funneled", error, flush=True)

# MPI is initialised once in a process, by the import in main; imports are what takes long here.
for level in ("serialized", "funneled"):
    child = os.fork()
    if not child:
        mpi4py.rc.thread_level = level
        main()
        raise SystemExit
    assert os.waitpid(child, 0)[1] == 0
"""


def _environ(**words: str) -> dict[str, str]:
    """Return this process's environment without what launchers leave, as a user's shell has it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)} | words


def test_laws(tmp_path: Path) -> None:
    """One-sided gets keep the laws of peers, with two owners that do not call MPI; nothing is left in memory.

    Ranks talk as if each had a node for itself: inside a node MPICH would have owners answer.
    """
    python, owner = sys.executable, str(HERE / "owner.py")
    command = [str(MPIEXEC), "-n", "1", python, str(HERE / "rank_laws.py"), str(tmp_path)]
    command += [":", "-n", "2", python, owner, str(tmp_path / "orders"), "mpi"]
    run = processes.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=_environ(MPIR_CVAR_NOLOCAL="1", OMP_NUM_THREADS="1"),
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "all laws hold"


@pytest.mark.long
def test_fewer_threads(tmp_path: Path) -> None:
    """Where one thread at a time may call MPI, calls take turns; where only the main thread may, that is an error."""
    (tmp_path / "one.py").write_text(ONE_RANK)
    serialized, funneled = printed_by_ranks(tmp_path / "one.py", " ".join(LAUNCHERS), ranks=1).splitlines()
    assert serialized == "serialized True"
    assert funneled.startswith("funneled MPI: found support for one thread only, expected MPI_THREAD_MULTIPLE; ")
