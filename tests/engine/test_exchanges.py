"""Real ranks by every exchange: the same numbers, and errors in bounded time when a rank is lost on the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.engine.rank_exchanges import BAD


def test_every_exchange_moves_the_same(launch: Callable[..., Any]) -> None:
    """Peer to peer and all to all are equal bit for bit, and again; ways of joining halos are equal to rounding.

    Moving nothing gives other numbers, or these comparisons would mean nothing. When a rank is lost in the middle of
    the backward pass, all that wait for it get an error.
    """
    outcomes = launch("rank_exchanges.py", 4)
    assert [outcome.status for outcome in outcomes] == [0] * 4, outcomes
    for rank, report in enumerate(outcome.report for outcome in outcomes):
        assert report["again"]
        assert report["all to all"]
        assert max(report["patch"], report["add"], report["mixed"]) <= 1e-12, report
        assert report["none"] > 1e-3
        if rank != BAD:
            assert report["lost"] == "InternalError"
