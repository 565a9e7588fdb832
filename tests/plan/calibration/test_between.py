"""Links between nodes: fitted, written into a machine's file, and measured by a real job of two launchers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from tests.plan.platform.test_files import CALIBRATION
from voxload.errors import UsageError
from voxload.plan.calibration.between import fitted_link, measure_between, write_between
from voxload.plan.costs.speeds import Link
from voxload.plan.platform import files

GUARD = 300
"""Seconds after which a job is ended."""


def test_a_link_is_what_all_ranks_of_a_node_share() -> None:
    """Its bytes a second are those of all of them together."""
    points = [(nbytes, 2e-5 + 4 * nbytes / 1e10) for nbytes in (4, 4096, 2**20, 2**24)]
    found = fitted_link(points, 4)
    assert found.latency == pytest.approx(2e-5)
    assert found.seconds_per_byte == pytest.approx(1e-10)


def test_a_file_has_one_link_between_nodes(tmp_path: Path) -> None:
    """The last that was measured; all else stays as it was, and plans on several nodes are possible."""
    path = tmp_path / "machine.toml"
    files.write(CALIBRATION, path, name="box", day=date(2026, 1, 2))
    before = files.load(str(path))
    with pytest.raises(UsageError, match="network between nodes"):
        before.fabric(2, is_alone=False)
    for speed in (1e9, 2e9):
        write_between(path, Link(3e-5, 1 / speed))
        found = files.load(str(path))
        assert found.between is not None
        assert found.between.latency == 3e-5
        assert found.between.seconds_per_byte == pytest.approx(1 / speed)
        assert replace(found, between=None) == before
        assert path.read_text().count("\n[links.between]\n") == 1
    # Wherever the table stands.
    table = "[links.between]\nlatency = 1\nbytes_per_second = 1\n"
    moved = path.read_text().replace("[calibration]\n", f"{table}[calibration]\n")
    path.write_text(moved[: moved.rindex("[links.between]")])
    write_between(path, Link(3e-5, 1e-9))
    found = files.load(str(path))
    assert found.between is not None
    assert found.between.latency == 3e-5


def test_two_nodes_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all ranks of each, before anything is sent."""
    monkeypatch.setenv("RANK", "0")
    for ranks in ("2", "3"):
        monkeypatch.setenv("WORLD_SIZE", ranks)
        with pytest.raises(UsageError, match=f"found {ranks} ranks, where a node of the machine's file has 2"):
            measure_between(2, "cpu")


@pytest.mark.long
def test_a_job_on_two_nodes_measures(tmp_path: Path) -> None:
    """Here of two launchers on this one; the first rank tells, and the file has it."""
    path = tmp_path / "machine.toml"
    files.write(CALIBRATION, path, name="box", day=date(2026, 1, 2))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"]
    words += ["--rdzv-backend", "static", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    command = Path(sys.executable).with_name("voxload")  # whatever the path of programs says
    call = ["--no-python", str(command), "plan", "calibrate", "--output", str(path)]
    environ = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    jobs = [
        subprocess.Popen(
            [*words, "--node-rank", str(node), *call],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ,
            start_new_session=True,
        )
        for node in range(2)
    ]
    try:
        printed = [job.communicate(timeout=GUARD)[0] for job in jobs]
    finally:
        for job in jobs:
            if job.poll() is None:
                os.killpg(job.pid, 9)
    assert [job.returncode for job in jobs] == [0, 0], printed
    assert "between nodes a message" in printed[0] + printed[1]
    found = files.load(str(path)).between
    assert found is not None
    assert 0 <= found.latency < 1
    assert 0 < found.seconds_per_byte < 1e-3
