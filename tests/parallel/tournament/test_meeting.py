"""Meetings: two trainers always agree on whether they met, whoever comes late, leaves or never comes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch.distributed

from tests.support import processes
from voxload.launch.rendezvous import LOOPBACK, store_at
from voxload.parallel.tournament.meeting import Meeting, adopters, ended_key

dist: Any = torch.distributed
LONG, SHORT = float(processes.LIMIT), 0.05
Connect = Callable[[], Any]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Yield what gives each trainer a connection of its own to one store."""
    stores = [store_at(LOOPBACK, 8, timeout=timedelta(seconds=processes.LIMIT))]

    def client() -> Any:
        return dist.TCPStore(LOOPBACK, stores[0].port, is_master=False, timeout=timedelta(seconds=processes.LIMIT))

    yield client
    stores.clear()  # pytest keeps the function


def _together(*calls: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(timeout=processes.LIMIT) for future in [pool.submit(call) for call in calls]]


def test_two_that_come_meet(connect: Connect) -> None:
    """In every round, whoever is first."""
    first, second = Meeting(connect(), 0, patience=LONG), Meeting(connect(), 3, patience=LONG)
    for number in range(1, 4):
        first.arrive(number)
        calls = (partial(first.meets, number, 3), partial(second.meets, number, 0))
        assert _together(*calls) == [True, True]


def test_one_that_does_not_come_forfeits_and_is_not_waited_for_again(connect: Connect) -> None:
    """Until it comes to a round; what it then finds of an old one is that the other has left."""
    early, late = Meeting(connect(), 0, patience=SHORT), Meeting(connect(), 1, patience=LONG)
    early.arrive(1)
    assert not early.meets(1, 1)
    patient = Meeting(connect(), 0, patience=LONG)
    patient._missed = early._missed
    patient.arrive(2)
    assert not patient.meets(2, 1)  # at once, or this would wait for ever
    late.arrive(1)
    assert not late.meets(1, 0)
    late.arrive(2)
    assert not late.meets(2, 0)
    late.arrive(3)
    patient.arrive(3)
    assert _together(lambda: patient.meets(3, 1), lambda: late.meets(3, 0)) == [True, True]


def test_one_that_has_ended_is_not_waited_for(connect: Connect) -> None:
    """Be it by itself or by whoever started it."""
    one, two = Meeting(connect(), 0, patience=LONG), Meeting(connect(), 1, patience=LONG)
    two.leave()
    assert not one.meets(1, 1)
    connect().set(ended_key(2), "")
    assert not one.meets(1, 2)


def test_one_that_ends_is_not_waited_for_any_longer(connect: Connect) -> None:
    """Nor by those that rank scores."""
    one, two = Meeting(connect(), 0, patience=LONG), connect()
    one.arrive(1)
    found = _together(lambda: one.meets(1, 1), lambda: two.wait(["round/1/0-1"]) or two.set(ended_key(1), ""))
    assert found[0] is False
    other = Meeting(connect(), 2, patience=LONG)
    words: Any = {"trainers": 4, "share": 0.5}
    found = _together(
        lambda: one.verdict(2, 1.0, **words), lambda: other.verdict(2, 2.0, **words), lambda: two.set(ended_key(3), "")
    )
    assert found[:2] == [{0: 0, 2: 0}] * 2


@pytest.mark.parametrize("patience", [0.001, pytest.param(0.002, marks=pytest.mark.long), 0.004])
def test_both_see_the_same_whenever_they_come(connect: Connect, patience: float) -> None:
    """One never waits for a model of another that has gone on."""
    one, two = Meeting(connect(), 0, patience=patience), Meeting(connect(), 1, patience=patience)
    seen = set()
    for number in range(60):
        gate = threading.Barrier(2)

        def come(meeting: Meeting, partner: int, *, gate: threading.Barrier = gate, number: int = number) -> bool:
            meeting.arrive(number)
            gate.wait(processes.LIMIT)
            return meeting.meets(number, partner)

        found = _together(lambda: come(one, 1), lambda: come(two, 0))
        assert found[0] == found[1]
        seen.add(found[0])
    assert True in seen


def test_scores_are_ranked_once(connect: Connect) -> None:
    """All that came see one ranking; who comes behind it keeps its own, and is in none."""
    scores = {0: 3.0, 1: 1.0, 2: 2.0}
    meetings = {each: Meeting(connect(), each, patience=LONG) for each in scores}

    def post(trainer: int) -> dict[int, int]:
        meetings[trainer].arrive(1)
        return meetings[trainer].verdict(1, scores[trainer], trainers=3, share=0.5)

    found = _together(*(partial(post, each) for each in scores))
    assert found == [{0: 1, 1: 1, 2: 2}] * 3
    assert adopters(found[0], 1) == [0]
    hasty = Meeting(connect(), 0, patience=SHORT)
    assert hasty.verdict(2, 1.0, trainers=2, share=0.5) == {0: 0}
    assert Meeting(connect(), 1, patience=LONG).verdict(2, 0.5, trainers=2, share=0.5) == {0: 0}
