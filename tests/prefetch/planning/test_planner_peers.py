"""Planner: one rule about peers a test, each told event by event."""

from __future__ import annotations

from tests.prefetch.planning.planner_bench import SIZE, STORAGE, Bench, fetches, peer, plan
from voxload.prefetch.cost import CostModel
from voxload.prefetch.events import Failure, Fetch, PeerLost, Ready, SlotFree, Waited, Wake
from voxload.prefetch.planning.limits import Limits


def test_what_the_storage_cannot_read_comes_from_whoever_has_it() -> None:
    """Only what no place has fails."""
    costs = CostModel(handicap=1, grace=0)
    for _ in range(20):
        costs.observe(peer(1), SIZE, 10.0)
    bench = Bench(plan([(1, 1)]), costs=costs)
    assert fetches(bench.answer) == [(0, STORAGE, [(0, 0)])]
    assert fetches(bench.failed(0, Failure.ERROR)) == [(1, peer(1), [(0, 0)])]
    assert bench.done(1) == [Ready(0, 0)]


def test_the_storage_is_preferred_only_where_it_is_many_times_faster() -> None:
    """A peer ten times slower than the storage is left, one three times slower is not."""
    for factor, expected in ((3, peer(1)), (20, STORAGE)):
        costs = CostModel(grace=0)
        for _ in range(40):
            costs.observe(STORAGE, SIZE, 0.1)
            costs.observe(peer(1), SIZE, 0.1 * factor)
        assert fetches(Bench(plan([(1, 1)]), costs=costs).answer) == [(0, expected, [(0, 0)])]


def test_a_peer_is_asked_when_its_block_is_nearly_due_and_holds_up_nothing() -> None:
    """Two own steps before, with leave to wait; later steps' blocks are fetched meanwhile."""
    bench = Bench(plan([(1,)], [(2,)], [(3,)], [(4, 1, 3), (5,)]), slots=4)
    assert [parts for _, _, parts in fetches(bench.answer)] == [[(0, 0)], [(1, 0)], [(2, 0)], [(3, 1)]]
    bench.done(0)
    assert fetches(bench.delivered(0)) == []
    bench.done(1)
    (fetch,) = bench.delivered(1)
    assert isinstance(fetch, Fetch)
    assert (fetch.source, fetch.wait) == (peer(1), Limits().wait)


def test_a_peer_that_must_have_the_block_is_not_waited_for() -> None:
    """What is due since two steps is there, or will not come: then the storage has it."""
    bench = Bench(plan([(1,)], [(2,)], [(3,)], [(4, 1, 0)]), slots=3)
    for step in range(2):
        bench.done(step)
        bench.delivered(step)
    (fetch,) = bench.tell(SlotFree(0.0, 0))
    assert isinstance(fetch, Fetch)
    assert (fetch.source, fetch.wait) == (peer(1), 0.0)
    assert fetches(bench.failed(fetch.ticket, Failure.ABSENT)) == [(4, STORAGE, [(3, 0)])]


def test_a_peer_that_has_the_block_by_now_needs_no_seat_of_those_that_wait() -> None:
    """What queued behind a block that is to come moves on when its own must be there."""
    bench = Bench(plan([(1,)], [(5,)], [(2, 1, 0), (3, 1, 0)]), slots=3, limits=Limits(awaited=1))
    assert [parts for _, source, parts in fetches(bench.answer) if source == peer(1)] == [[(2, 0)]]
    for ticket, source, _ in fetches(bench.answer):
        if source == STORAGE:
            bench.done(ticket)
    assert fetches(bench.delivered(0)) == []
    assert [parts for _, _, parts in fetches(bench.delivered(1))] == [[(2, 1)]]


def test_a_block_that_may_still_come_is_asked_for_until_patience_ends() -> None:
    """The step at hand waits so long and no longer; a `Wake` sees to it."""
    limits = Limits(wait=0.5, patience=2.0)
    bench = Bench(plan([(1, 1, 0)]), limits=limits)
    asked = 0
    answer = bench.answer
    while fetches(answer)[0][1] == peer(1):
        asked += 1
        answer = bench.failed(fetches(answer)[0][0], Failure.ABSENT)
        if wakes := [one for one in answer if isinstance(one, Wake)]:
            bench.now = wakes[0].at
            answer = bench.tell(Waited(bench.now))
    assert asked == 5
    assert bench.now == 2.0
    assert fetches(answer)[0][1] == STORAGE


def test_a_step_that_is_not_at_hand_waits_longer() -> None:
    """Patience ends only where the consumer may be waiting."""
    bench = Bench(plan([(1,)], [(2, 1, 1)]), slots=2)
    bench.failed(1, Failure.ABSENT)
    bench.now = 100.0
    ((ticket, source, _),) = fetches(bench.tell(Waited(bench.now)))
    assert source == peer(1)
    bench.now = 101.0
    ((_, source, _),) = fetches(bench.failed(ticket, Failure.ABSENT))
    assert source == peer(1)


def test_a_damaged_block_is_asked_for_once_more() -> None:
    """It may have been damaged on the way; then the storage has it."""
    bench = Bench(plan([(1, 1)]))
    assert fetches(bench.failed(0, Failure.WRONG)) == [(1, peer(1), [(0, 0)])]
    assert fetches(bench.failed(1, Failure.WRONG)) == [(2, STORAGE, [(0, 0)])]


def test_a_peer_that_fails_again_and_again_is_left() -> None:
    """After three bad answers in a row; a good one in between starts anew."""
    bench = Bench(plan([(sample, 1) for sample in range(10)]), limits=Limits(awaited=1))
    answer = bench.answer
    for failure in (Failure.LOST, Failure.LOST, None, Failure.LOST, Failure.WRONG):
        (ticket,) = [ticket for ticket, source, _ in fetches(answer) if source == peer(1)]
        answer = bench.done(ticket) if failure is None else bench.failed(ticket, failure)
    assert bench.planner.distrusted == frozenset()
    (ticket,) = [ticket for ticket, source, _ in fetches(answer) if source == peer(1)]
    left = fetches(bench.failed(ticket, Failure.LOST))
    assert bench.planner.distrusted == {1}
    assert {source for _, source, _ in left} == {STORAGE}


def test_a_peer_that_is_slow_again_and_again_is_left() -> None:
    """Slow is many times slower than the storage, and more than a second."""
    costs = CostModel()
    for _ in range(10):
        costs.observe(STORAGE, SIZE, 0.01)
    bench = Bench(plan([(sample, 1) for sample in range(3)], [(9, 1)]), costs=costs)
    for ticket in range(3):
        bench.done(ticket, seconds=5.0)
    assert bench.planner.distrusted == {1}


def test_nothing_is_asked_of_a_lost_peer() -> None:
    """What waited for it, for a step even, comes from the storage at once."""
    bench = Bench(plan([(1,)], [(2,)], [(3, 1, 2)], [(4, 1, 3)]), slots=4)
    assert fetches(bench.answer) == [(0, STORAGE, [(0, 0)]), (1, STORAGE, [(1, 0)])]
    assert fetches(bench.tell(PeerLost(0.0, 1))) == [(2, STORAGE, [(2, 0)]), (3, STORAGE, [(3, 0)])]
