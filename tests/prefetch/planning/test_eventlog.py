"""EventLog: what is written is read again, and what is not a log is refused; replays stand in test_planner_world.py."""

from __future__ import annotations

import numpy as np
import pytest

from voxload.errors import DataError, InternalError
from voxload.prefetch.cost import CostModel
from voxload.prefetch.events import Delivered, Failure, Fetch, FetchFailed, Part, SlotFree, Source, SourceKind, Wake
from voxload.prefetch.line import Line, Room
from voxload.prefetch.placement import RankPlan
from voxload.prefetch.planning.eventlog import Cut, EventLog, Logged, replay
from voxload.prefetch.planning.limits import Limits
from voxload.prefetch.planning.planner import Planner


def planner() -> Planner:
    """Return a small one."""
    line = Line(sizes=np.full(4, 100), rooms=(Room(memory=0, disk=0),))
    return Planner(line, 0, limits=Limits(), costs=CostModel(), files=np.arange(4))


def test_records_survive_text() -> None:
    """Types, enums and every digit of floats; arrays with their type and shape."""
    log = EventLog()
    fetch = Fetch(3, Source(SourceKind.PEER, 2), (Part(1, 0, 9, 4), Part(2, 0, 8, 5)), 0.1 + 0.2)
    log.append(FetchFailed(1 / 3, 7, Failure.WRONG, 1e-300), [fetch, Wake(2.0)])
    log.append(Cut(5))
    table = np.arange(6).reshape(3, 2)
    nothing = np.zeros(0, np.int64)
    small = table.astype(np.int8)
    log.append(RankPlan(1, 2, table, table.astype(np.int32), small, table, small, nothing, nothing))
    again = list(EventLog.from_text(log.to_text()))
    assert again[:2] == list(log)[:2]
    found = again[2].told
    assert isinstance(found, RankPlan)
    for name in RankPlan.__slots__:
        value, expected = np.asarray(getattr(found, name)), np.asarray(getattr(list(log)[2].told, name))
        assert (value.dtype, value.shape, value.tolist()) == (expected.dtype, expected.shape, expected.tolist())


def test_a_call_that_raises_is_logged_and_raises_again() -> None:
    """That is what logs are for."""
    logged = Logged(planner(), EventLog())
    logged.handle(SlotFree(0.0, 0))
    with pytest.raises(InternalError):
        logged.handle(Delivered(1.0, 3))
    with pytest.raises(InternalError, match="step 3"):
        replay(planner(), [record.told for record in EventLog.from_text(logged.log.to_text())])


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"told":{"type":"Nothing"},"answer":[]}', '{"told":{"type":"Cut"},"answer":[]}']
)
def test_what_is_no_log_is_refused(text: str) -> None:
    """The line is named."""
    with pytest.raises(DataError, match="line 2"):
        EventLog.from_text(EventLog.from_text("").to_text() + '{"told":{"type":"Cut","step":1},"answer":[]}\n' + text)
