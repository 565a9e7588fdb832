"""The clock and shared resources of a simulation: times follow from rates, and bytes are conserved."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.prefetch.simulation.clock import Action, Clock, Pool, Shared


def _run(clock: Clock) -> None:
    while clock.advance():
        pass


def test_actions_run_in_the_order_of_time() -> None:
    """Later ones later, equal ones as planned, and one for the past at once."""
    clock, seen = Clock(), list[tuple[str, float]]()
    clock.at(2.0, lambda: seen.append(("second", clock.now)))

    def first() -> None:
        seen.append(("first", clock.now))
        clock.at(0.0, lambda: seen.append(("late", clock.now)))

    clock.at(1.0, first)
    clock.at(2.0, lambda: seen.append(("third", clock.now)))
    _run(clock)
    assert seen == [("first", 1.0), ("late", 1.0), ("second", 2.0), ("third", 2.0)]


def test_shares_are_equal() -> None:
    """Of two transfers, the smaller ends after twice its own time; the other then has all of the rate."""
    clock, ends = Clock(), dict[str, float]()
    link = Shared(clock, lambda _transfers, _clients: 10.0)
    link.begin(10, 0, lambda: ends.update(small=clock.now))
    link.begin(30, 1, lambda: ends.update(large=clock.now))
    _run(clock)
    assert ends == {"small": pytest.approx(2.0), "large": pytest.approx(4.0)}


def test_the_rate_follows_the_clients() -> None:
    """Two transfers of one client are one client; of two clients they get twice as much here."""
    for clients, seconds in (((0, 0), 4.0), ((0, 1), 2.0)):
        clock, ends = Clock(), list[float]()
        storage = Shared(clock, lambda _transfers, active: 10.0 * active)
        for client in clients:
            storage.begin(20, client, lambda clock=clock, ends=ends: ends.append(clock.now))  # type: ignore[misc]
        _run(clock)
        assert ends == [pytest.approx(seconds)] * 2


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 50)), min_size=1, max_size=12))
def test_processor_sharing_against_exact_arithmetic(transfers: list[tuple[int, int]]) -> None:
    """Ends equal those of equal shares worked out in fractions, whenever transfers begin and however long they are."""
    clock = Clock()
    link = Shared(clock, lambda _transfers, _clients: 3.0)
    ends: dict[int, float] = {}
    for number, (begin, nbytes) in enumerate(transfers):

        def act(number: int = number, nbytes: int = nbytes) -> None:
            link.begin(nbytes, number, lambda: ends.update({number: clock.now}))

        clock.at(float(begin), act)
    _run(clock)
    assert link.active == 0
    assert [ends[number] for number in range(len(transfers))] == pytest.approx(
        [float(end) for end in _exact(transfers)]
    )


def _exact(transfers: list[tuple[int, int]]) -> list[Fraction]:
    now, left = Fraction(0), {number: Fraction(nbytes) for number, (_, nbytes) in enumerate(transfers)}
    ends = [Fraction(0)] * len(transfers)
    while left:
        active = [number for number in left if transfers[number][0] <= now]
        coming = [Fraction(begin) for number, (begin, _) in enumerate(transfers) if number in left and begin > now]
        share = Fraction(3, len(active)) if active else Fraction(0)
        times = coming + [now + left[number] / share for number in active]
        then = min(times)
        for number in active:
            left[number] -= (then - now) * share
            if left[number] == 0:
                ends[number] = then
                del left[number]
        now = then
    return ends


@given(st.integers(1, 4), st.lists(st.integers(1, 9), max_size=20))
def test_a_pool_keeps_its_threads_busy(threads: int, seconds: list[int]) -> None:
    """Never more at once than threads; in the order submitted; none idle while something waits."""
    clock, pool = Clock(), Pool(threads)
    begun: list[int] = []
    active = 0

    def job(number: int) -> None:
        def begin(end: Action) -> None:
            nonlocal active
            active += 1
            assert active <= threads
            begun.append(number)
            clock.after(seconds[number], lambda: finish(end))

        pool.submit(begin)

    def finish(end: Action) -> None:
        nonlocal active
        active -= 1
        waiting = len(seconds) - len(begun)
        end()
        assert active == min(threads, active + waiting) or waiting == 0 or active == threads

    for number in range(len(seconds)):
        job(number)
    _run(clock)
    assert begun == list(range(len(seconds)))
