"""Planner: one rule a test, each told event by event."""

from __future__ import annotations

import pytest

from tests.prefetch.planning.planner_bench import OWN_MEMORY, SIZE, STORAGE, Bench, Cell, fetches, plan, stores
from voxload.errors import InternalError, UsageError
from voxload.prefetch.events import Drop, Failed, Failure, Ready, SlotFree, Waited
from voxload.prefetch.line import DISK, MEMORY
from voxload.prefetch.planning.access import FetchQueue
from voxload.prefetch.planning.limits import Limits


def test_a_step_is_ready_when_all_its_blocks_are_there() -> None:
    """Ready comes with the last block, not before."""
    bench = Bench(plan([(1,), (2,)]))
    assert fetches(bench.answer) == [(0, STORAGE, [(0, 0)]), (1, STORAGE, [(0, 1)])]
    assert bench.done(1) == []
    assert bench.done(0) == [Ready(0, 0)]


def test_steps_come_out_in_order_whatever_ends_first() -> None:
    """A later step that is complete waits for the one before."""
    bench = Bench(plan([(1,)], [(2,)]), slots=2)
    assert bench.done(1) == []
    assert bench.done(0) == [Ready(0, 0), Ready(1, 1)]


def test_the_step_at_hand_is_never_behind_a_later_one() -> None:
    """With one fetch at a time, blocks are fetched in the order of need."""
    bench = Bench(plan([(1,), (2,)], [(3,)]), slots=2, limits=Limits(storage=1))
    issued = fetches(bench.answer)
    for ticket in range(2):
        issued += fetches(bench.done(ticket))
    assert [parts for _, _, parts in issued] == [[(0, 0)], [(0, 1)], [(1, 0)]]


def test_a_slot_that_comes_back_before_delivery_is_used_again() -> None:
    """A batch that was copied to a device needs its slot no longer, delivered or not."""
    bench = Bench(plan([(1,)], [(2,)]))
    bench.done(0)
    assert fetches(bench.tell(SlotFree(0.0, 0))) == [(1, STORAGE, [(1, 0)])]
    assert bench.done(1) == [Ready(1, 0)]
    assert bench.delivered(0) == []


def test_steps_without_blocks_pass_by_themselves() -> None:
    """An empty step is neither ready nor delivered, but what is dropped at it is dropped."""
    bench = Bench(plan([(1,)], [], [(2,)], drops=((2, 9),)), held={9: DISK})
    bench.done(0)
    assert Drop(9) in bench.delivered(0)
    assert bench.planner.clock == 1
    assert fetches(bench.tell(SlotFree(0.0, 0))) == [(1, STORAGE, [(2, 0)])]


def test_blocks_of_one_file_share_a_fetch_when_seats_are_short() -> None:
    """As many as let others begin beside them; neither another file's nor, with the step at hand, a later step's."""
    files = [0] * 10 + [1] * 40
    bench = Bench(plan([(1,), (20,), (2,)], [(3,), (4,)]), slots=1, limits=Limits(storage=1), files=files)
    assert fetches(bench.answer) == [(0, STORAGE, [(0, 0), (0, 2)])]
    bench.tell(SlotFree(0.0, 1))
    assert fetches(bench.done(0)) == [(1, STORAGE, [(0, 1)])]
    assert fetches(bench.done(1)) == [(2, STORAGE, [(1, 0), (1, 1)])]
    many = Bench(plan([(1,), (2,), (3,)]), limits=Limits(storage=3), files=files)
    assert len(fetches(many.answer)) == 3


def test_blocks_of_later_steps_ride_along_within_the_window() -> None:
    """A fetch that is not for the step at hand brings blocks of the next steps, up to its limits."""
    steps: list[list[Cell]] = [[(20,)], [(1,)], [(2,)], [(3,)], [(4,)]]
    files = [0] * 10 + [1] * 40
    bench = Bench(plan(*steps), slots=5, limits=Limits(storage=1, window=2), files=files)
    # Step 0 is ready but not delivered: step 1 is not at hand.
    assert fetches(bench.done(0)) == [(1, STORAGE, [(1, 0), (2, 0), (3, 0)])]
    bench = Bench(plan(*steps), slots=5, limits=Limits(storage=1, window=2, bytes=2 * SIZE), files=files)
    assert fetches(bench.done(0)) == [(1, STORAGE, [(1, 0), (2, 0)])]


def test_of_a_fetch_of_several_that_failed_each_is_fetched_alone() -> None:
    """One broken block fails its own step only."""
    bench = Bench(plan([(1,), (2,)]), limits=Limits(storage=1), files=[0] * 50)
    assert fetches(bench.answer) == [(0, STORAGE, [(0, 0), (0, 1)])]
    assert fetches(bench.failed(0, Failure.ERROR)) == [(1, STORAGE, [(0, 0)])]
    assert fetches(bench.done(1)) == [(2, STORAGE, [(0, 1)])]
    assert bench.failed(2, Failure.ERROR) == [Failed(0, 0, 2)]


def test_a_failed_step_is_told_when_its_turn_comes_and_later_ones_are_unharmed() -> None:
    """The error comes in place of its own batch."""
    bench = Bench(plan([(1,)], [(2,)], [(3,)]), slots=3)
    assert bench.failed(1, Failure.ERROR) == []
    assert bench.done(2) == []
    assert bench.done(0) == [Ready(0, 0), Failed(1, 1, 1), Ready(2, 2)]


def test_blocks_are_stored_before_the_step_is_ready() -> None:
    """The consumer may change its batch, so what is kept is kept before."""
    bench = Bench(plan([(1, -1, 0, MEMORY)]))
    assert stores(bench.done(0)) == [(1, MEMORY)]
    assert bench.stored(1) == [Ready(0, 0)]
    assert dict(bench.planner.held) == {1: MEMORY}


def test_a_store_without_room_waits_for_the_drops_of_its_step() -> None:
    """It begins when the step before was delivered, after the drop that makes the room."""
    bench = Bench(plan([(1,)], [(2, -1, 1, MEMORY)], drops=((1, 7),)), slots=2, held={7: MEMORY}, room=SIZE)
    bench.done(1)
    bench.done(0)
    answer = bench.delivered(0)
    assert answer[0] == Drop(7)
    assert stores(answer[1:]) == [(2, MEMORY)]
    assert bench.stored(2) == [Ready(1, 1)]


def test_a_drop_is_not_for_what_was_stored_for_a_later_step() -> None:
    """A store was refused, and the next one of its sample came before the drop that was meant for the first."""
    steps: list[list[Cell]] = [[(1, -1, 0, MEMORY)], [(2,)], [(3,)], [(1, -1, 3, MEMORY)]]
    bench = Bench(plan(*steps, drops=((2, 1),)), slots=4)
    bench.done(0)
    bench.stored(1, is_kept=False)
    assert stores(bench.done(3)) == [(1, MEMORY)]
    bench.stored(1)
    for step in (1, 2):
        bench.done(step)
    assert Drop(1) not in bench.delivered(0) + bench.delivered(1)
    assert dict(bench.planner.held) == {1: MEMORY}


def test_a_later_store_does_not_take_the_room_of_an_earlier_one() -> None:
    """Stores of a tier begin in the order of need, whatever is there first."""
    bench = Bench(plan([(1, -1, 0, MEMORY)], [(2, -1, 1, MEMORY)]), slots=2, room=SIZE)
    assert stores(bench.done(1)) == []
    assert stores(bench.done(0)) == [(1, MEMORY)]


def test_a_store_that_was_refused_is_not_planned_on() -> None:
    """An own access that relied on it goes to the storage at once."""
    bench = Bench(plan([(1, -1, 0, MEMORY)], [(1, 0, 0)]), slots=2)
    bench.done(0)
    answer = bench.stored(1, is_kept=False)
    assert Ready(0, 0) in answer
    assert fetches(answer) == [(1, STORAGE, [(1, 0)])]


def test_an_own_access_waits_for_the_store_it_relies_on() -> None:
    """The storage is read once for a sample that comes again soon."""
    bench = Bench(plan([(1, -1, 0, MEMORY)], [(1, 0, 0)]), slots=2)
    assert len(fetches(bench.answer)) == 1
    assert fetches(bench.done(0)) == []
    assert fetches(bench.stored(1)) == [(1, OWN_MEMORY, [(1, 0)])]


def test_an_own_block_that_is_damaged_is_dropped_and_read_again() -> None:
    """The storage has it, and nobody is sent to the tier for it again."""
    bench = Bench(plan([(1, 0)], [(1, 0)]), slots=1, held={1: MEMORY})
    answer = bench.failed(0, Failure.ABSENT)
    assert Drop(1) in answer
    assert fetches(answer) == [(1, STORAGE, [(0, 0)])]
    bench.done(1)
    assert fetches(bench.tell(SlotFree(0.0, 0))) == [(2, STORAGE, [(1, 0)])]


def test_a_cut_slot_comes_back_when_what_is_under_way_there_ended() -> None:
    """Neither its block nor its store counts; the new plan's step gets the slot then."""
    bench = Bench(plan([(1, -1, 0, MEMORY), (2,)]))
    bench.done(0)
    bench.planner.cut(0)
    bench.planner.extend(plan([(3,)]))
    assert bench.tell(Waited(0.0)) == []
    assert bench.done(1) == []
    answer = bench.stored(1)
    assert answer[0] == Drop(1)
    assert fetches(answer) == [(2, STORAGE, [(0, 0)])]
    assert not bench.planner.held


def test_what_cannot_be_is_refused() -> None:
    """Each names what was found and expected."""
    bench = Bench(plan([(1,)], [(2,)]))
    with pytest.raises(InternalError, match="slot 0"):
        bench.tell(SlotFree(0.0, 0))
    with pytest.raises(InternalError, match="ticket 9"):
        bench.done(9)
    with pytest.raises(InternalError, match="sample 9"):
        bench.stored(9)
    with pytest.raises(InternalError, match="step 1"):
        bench.delivered(1)
    with pytest.raises(InternalError, match="first step 1"):
        bench.planner.extend(plan([(1,)], first_step=1))
    with pytest.raises(InternalError, match="step -1"):
        bench.planner.cut(-1)
    with pytest.raises(UsageError, match="bytes in tier"):
        Bench(held={1: MEMORY, 2: MEMORY}, room=SIZE)
    with pytest.raises(UsageError, match=r"limits\.storage"):
        Limits(storage=0)


def test_validate_names_what_does_not_hold() -> None:
    """A broken count is found, whichever it is."""
    bench = Bench(plan([(1, -1, 0, MEMORY)], [(2,)]), held={5: MEMORY})
    state = bench.planner._state
    state.taken[FetchQueue.STORAGE] += 1
    with pytest.raises(InternalError, match="fetches at once are limited"):
        bench.planner.validate()
    state.taken[FetchQueue.STORAGE] -= 1
    state.holdings.used[MEMORY] += 1
    with pytest.raises(InternalError, match="tiers have room"):
        bench.planner.validate()
    state.holdings.used[MEMORY] -= 1
    state.free.append(0)
    with pytest.raises(InternalError, match="a slot belongs to one step"):
        bench.planner.validate()
