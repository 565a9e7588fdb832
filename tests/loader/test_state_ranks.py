"""A job that is killed goes on with other sample groups, on real processes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import torch

from tests.support.ranks import run_ranks

SAMPLES = 11


def _job(ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).parent / "state_ranks.py"
    return run_ranks(script, *arguments, ranks=ranks, check=False)


def _samples(place: Path, ranks: int, group_size: int) -> list[int]:
    """Return what all groups of a job got, in the order of the epoch; ranks of a group must have got the same."""
    found = [[int(line) for line in (place / f"{ranks}-{rank}").read_text().split()] for rank in range(ranks)]
    groups = found[::group_size]
    assert all(found[rank] == groups[rank // group_size] for rank in range(ranks))
    return [sample for step in zip(*groups, strict=True) for sample in step]


def test_a_killed_job_goes_on_with_other_groups(folder: Path, tmp_path: Path) -> None:
    """Two groups of two ranks die by SIGKILL after two batches each; three ranks of a group each do the rest."""
    killed = _job(4, str(folder), str(tmp_path), "2,1,1", "2")
    assert killed.returncode != 0
    assert json.loads((tmp_path / "state.json").read_text())["position"] == 4
    first = _samples(tmp_path, 4, 2)
    done = _job(3, str(folder), str(tmp_path), "1,1,1", "-1")
    assert done.returncode == 0, done.stderr
    rest = _samples(tmp_path, 3, 1)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(6)).tolist()
    assert first == order[:4]
    assert rest[: SAMPLES - 4] == order[4:]
    assert len(rest) == 9  # seven are left for three groups, each of which gets three
    assert json.loads((tmp_path / "state.json").read_text())["position"] == SAMPLES
