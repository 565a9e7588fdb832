"""Grids and blocks in torch's words: DeviceMesh and DTensor, on real ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_grids_are_meshes_and_blocks_are_parts_of_dtensors(launch: Callable[..., Any]) -> None:
    """There and back nothing changes, gradients pass, and what torch means otherwise is refused on every rank."""
    outcomes = launch("rank_meshes.py", 4)
    assert [outcome.status for outcome in outcomes] == [0] * 4, outcomes
    for report in (outcome.report for outcome in outcomes):
        assert report["round"]
        assert report["named"] == [1, 2, 2]
        for name in ("whole", "gradient", "back", "same", "theirs"):
            assert report[name], name
        turned, nameless, narrow, other, replicated = report["refused"]
        assert "expected 0 to 3 in order" in turned
        assert "expected some of ('d', 'h', 'w')" in nameless
        assert "found shape (2, 3, " in narrow
        assert "block of rank" in other
        assert "call redistribute before" in replicated
        assert "make the extent a multiple of 4" in report["uneven"]
        assert "blocks that begin at (0, 2, 5, " in report["uneven"]
