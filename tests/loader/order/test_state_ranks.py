"""A job that is killed goes on with other sample groups, on real processes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import torch

from tests.support.ranks import printed_by_ranks, run_ranks

SAMPLES = 11
SCRIPT = Path(__file__).parent / "state_ranks.py"


def _samples(place: Path, ranks: int, group_size: int) -> list[int]:
    """Return what all groups of a job got, in the order of the epoch; ranks of a group must have got the same."""
    found = [[int(line) for line in (place / f"{ranks}-{rank}").read_text().split()] for rank in range(ranks)]
    groups = found[::group_size]
    assert all(found[rank] == groups[rank // group_size] for rank in range(ranks))
    return [sample for step in zip(*groups, strict=True) for sample in step]


def test_a_killed_job_goes_on_with_other_groups(folder: Path, tmp_path: Path) -> None:
    """Two groups of two ranks die by SIGKILL after two batches each; three ranks of a group each do the rest."""
    killed = run_ranks(SCRIPT, folder, tmp_path, "2,1,1", "2", ranks=4, ends_together=False)
    assert [rank.status for rank in killed] == [-signal.SIGKILL] * 4
    assert json.loads((tmp_path / "state.json").read_text())["position"] == 4
    first = _samples(tmp_path, 4, 2)
    printed_by_ranks(SCRIPT, folder, tmp_path, "1,1,1", "-1", ranks=3)
    rest = _samples(tmp_path, 3, 1)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(6)).tolist()
    assert first == order[:4]
    assert rest[: SAMPLES - 4] == order[4:]
    assert len(rest) == 9  # seven are left for three groups, each of which gets three
    assert json.loads((tmp_path / "state.json").read_text())["position"] == SAMPLES
