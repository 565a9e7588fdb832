"""Pipelines on real ranks: stages that are split over groups, beside one process in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.engine.forward.onblocks_world import TOLERANCE


def test_stages_give_what_one_process_gives(launch: Callable[..., Any]) -> None:
    """Losses and gradients, cut in a volume or behind the flatten, under DDP over two pipelines, and across skips."""
    outcomes = launch("rank_pipeline.py", 4)
    assert [outcome.status for outcome in outcomes] == [0] * 4, outcomes
    losses = 0
    for report in (outcome.report for outcome in outcomes):
        for case in ("split", "late", "side by side", "skips"):
            assert max(report[case].values()) <= TOLERANCE, (case, report)
            losses += "loss" in report[case]
        counts, synced, several = report["refused"]
        assert "a pipeline of 3 parts: found 2 sample groups of 2 ranks" in counts
        assert "found SyncBatchNorm" in synced
        assert "part 1 of a pipeline: found 2 tensors that it takes, cut over 2 ranks" in several
    assert losses == 2 + 2 + 1 + 1
