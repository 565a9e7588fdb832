"""Future: against a list that is searched."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import InternalError
from voxload.prefetch.sharing.future import NEVER, Future

UNITS = st.lists(st.integers(0, 6), max_size=12)


@given(data=st.data())
def test_any_uses_in_any_order(data: st.DataObject) -> None:
    """Foreseen in pieces, cut, foreseen anew and passed: the next use of each unit is where a search finds it."""
    future, uses, place = Future(0.0), list[int](), 0
    for now in range(data.draw(st.integers(1, 8))):
        if data.draw(st.booleans()):
            at = data.draw(st.integers(place, len(uses)))
            uses[at:] = data.draw(UNITS)
            future.foresee(at, np.array(uses[at:], np.int64))
            assert future.scanned <= max(at, place)
        else:
            there = data.draw(st.integers(place, len(uses)))
            assert sorted(future.advance(there, float(now)).tolist()) == sorted(uses[place:there])
            place = there
        assert (future.place, future.end) == (place, len(uses))
        for unit in range(7):
            found = uses.index(unit, place) if unit in uses[place:] else NEVER
            assert future.next_use(unit) == found
        assert [future.use(at) for at in range(place, len(uses))] == uses[place:]
        seconds = future.seconds_to(np.arange(7), float(now), 2.0)
        pace = future.pace(float(now), 2.0)
        for unit in range(7):
            later = future.next_use(unit)
            assert seconds[unit] == (math.inf if later == NEVER else pytest.approx((later - place) * pace))


def test_a_job_is_as_fast_as_it_was_and_slower_where_it_stops() -> None:
    """Moves of many uses at once count as these, and a pause between two of them is none."""
    future = Future(100.0)
    future.foresee(0, np.arange(1000))
    assert future.pace(100.0, 7.0) == 7.0
    for step in range(1, 11):
        future.advance(8 * step, 100.0 + 4.0 * step)
    assert future.measured == pytest.approx(0.5)
    assert future.pace(140.0, 7.0) == pytest.approx(0.5)
    assert future.pace(155.0, 7.0) == pytest.approx(0.5)
    assert future.pace(140.0 + 160.0, 7.0) == pytest.approx(5.0, rel=0.01)
    for step in range(1, 31):
        future.advance(80 + 8 * step, 140.0 + 8.0 * step)
    assert future.measured == pytest.approx(1.0, rel=0.01)


def test_places_out_of_reach() -> None:
    """A job cannot use what was not foreseen, nor go back."""
    future = Future(0.0)
    future.foresee(0, np.arange(4))
    future.advance(2, 1.0)
    for wrong in (1, 5):
        with pytest.raises(InternalError, match="found place"):
            future.advance(wrong, 2.0)
        with pytest.raises(InternalError, match="found uses from"):
            future.foresee(wrong, np.arange(1))
