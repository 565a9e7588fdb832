"""Weights of which each rank keeps a part alone: on real ranks, under DDP and FSDP2, beside one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.engine.forward.onblocks_world import TOLERANCE


def test_parts_train_like_the_whole(launch: Callable[..., Any]) -> None:
    """Three steps with momentum give what one process gives, whole states are saved and loaded, and misuse is named."""
    outcomes = launch("rank_sharded_weights.py", 4)
    assert [outcome.status for outcome in outcomes] == [0] * 4, outcomes
    for report in (outcome.report for outcome in outcomes):
        assert report["own"] == {
            "second.weight": [12, 12, 3, 3, 3],
            "third.weight": [12, 12, 3, 3, 3],
            "apart.weight": [12, 1, 3, 3, 3],
            "up.weight": [12, 12, 2, 2, 2],
            "wide.weight": [12, 12],
        }
        assert report["moments"] == {"second.weight": [24, 12, 3, 3, 3], "first.weight": [12, 2, 3, 3, 3]}
        assert max(report["ddp"], report["fsdp"]) <= TOLERANCE, report
        assert report["loaded"] == 0
        uneven, unplanned, shapeless, tied, twice = report["refused"]
        assert "layer 'last': found 3 features to cut, expected a multiple of 2" in uneven
        assert "give plan= and shape=" in unplanned
        assert "give plan= and shape=" in shapeless
        assert "layer 'wide': found a weight that other layers have, too" in tied
        assert "gradients of them that are differentiated" in twice
