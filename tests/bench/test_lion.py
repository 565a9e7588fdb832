"""bench/lion.py runs where network namespaces can be made: its figures mean nothing at this size, an error does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import processes

ROOT = Path(__file__).parents[2]


def _can_make_links() -> bool:
    """Tell whether this machine lets a process have a network, with links of limited speed, of its own."""
    if any(shutil.which(tool) is None for tool in ("ip", "tc", "unshare", "mount")):
        return False
    limit = "tc qdisc add dev lo root tbf rate 1mbit burst 64kb latency 50ms && mount -t tmpfs tmpfs /run"
    tried = subprocess.run(
        [shutil.which("unshare") or "", "--net", "--mount", "--map-root-user", "sh", "-c", limit],
        check=False,
        capture_output=True,
    )
    return tried.returncode == 0


@pytest.mark.long
@pytest.mark.skipif(not _can_make_links(), reason="needs iproute2, and the right to make network namespaces")
def test_votes_are_fewer_bytes() -> None:
    """Each optimiser takes its steps; links tell what was sent."""
    command = [sys.executable, "bench/lion.py", "--ranks", "2", "--steps", "1", "--turns", "1", "--megabits", "1000"]
    done = processes.run([*command, "--json"], check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode in {0, 1}, done.stderr
    rows = json.loads(done.stdout)
    shares = {row["optimiser"]: row["share_of_bytes"] for row in rows}
    assert 0 < shares["majority"] < shares["8 bits"] < shares["exact"]
