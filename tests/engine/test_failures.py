"""Real ranks on which something goes wrong: everybody concerned gets an error, in bounded time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_nobody_waits_for_ever(launch: Callable[..., Any]) -> None:
    """A wrong block, another network, a late rank and a lost one end in errors on their group, and only there."""
    outcomes = launch("rank_failures.py", 4)
    assert [outcome.status for outcome in outcomes] == [0] * 4, outcomes
    reports = [outcome.report for outcome in outcomes]
    for report in reports:
        assert report["masks"] == [True] * 3
        assert report["after"]["error"] is None
    for healthy in reports[:2]:
        assert [healthy[case]["error"] for case in ("block", "network", "late", "lost")] == [None] * 4
    for report in reports[2:]:
        assert report["block"]["error"] == "UsageError"
        assert "block of rank 3: found shape (2, 1, 2, 4, 4), expected (2, 1, 3, 4, 4)" in report["block"]["text"]
        assert report["network"]["error"] == "InternalError"
        assert "rank 3: found another network" in report["network"]["text"]
    partner = reports[2]
    assert partner["late"]["error"] == "InternalError"
    assert partner["late"]["seconds"] > 2.0
    assert partner["lost"]["error"] == "InternalError"
    assert "\n" not in partner["lost"]["text"]
