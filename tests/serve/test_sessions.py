"""Sessions: leases by the time that the service was there to see, and one speaker a session."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from voxload.errors import UsageError
from voxload.serve.sessions import Session, Sessions

LEASE = 12.0


def _sessions(*, most: int = 8, most_of_user: int = 8) -> Sessions:
    sessions = Sessions(lease=LEASE, most=most, most_of_user=most_of_user)
    assert sessions.tick(100.0) == []
    return sessions


def _pass(sessions: Sessions, now: float, seconds: float) -> list[Session]:
    """Let so many seconds pass, as a service sees them."""
    ended = []
    steps = int(seconds)
    for step in range(1, steps + 1):
        ended += sessions.tick(now + step)
    return ended


def test_a_lease_runs_from_the_beginning() -> None:
    """To its end and no longer, unless it is renewed."""
    sessions = _sessions()
    first, second = sessions.open(1, 10, "a"), sessions.open(1, 11, "b")
    assert _pass(sessions, 100.0, 11) == []
    renewed = sessions.renew(second.number, second.generation)
    assert renewed is not None
    assert _pass(sessions, 111.0, 1) == [first]
    assert sessions.find(first.number) is None
    assert sessions.renew(first.number, first.generation) is None
    assert sessions.resume(first.number, first.generation, 1, 10) is None
    assert _pass(sessions, 112.0, 11) == [renewed]
    assert len(sessions) == 0


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 0.0])
def test_time_that_the_service_did_not_see_does_not_count(jump: float) -> None:
    """Stopped for an hour, or with a clock that went back, it ends nobody at once: half a lease passes at most."""
    sessions = _sessions()
    session = sessions.open(1, 10, "a")
    assert sessions.tick(100.0 + jump) == []
    assert sessions.renew(session.number, session.generation) is not None
    assert _pass(sessions, 100.0 + jump, 11) == []
    assert len(_pass(sessions, 111.0 + jump, 1)) == 1


def test_one_connection_speaks_for_a_session() -> None:
    """The one that came last; neither the one before, nor another user."""
    sessions = _sessions()
    first = sessions.open(1, 10, "a")
    assert sessions.resume(first.number, first.generation, 2, 20) is None
    second = sessions.resume(first.number, first.generation, 1, 20)
    assert second is not None
    assert (second.number, second.generation, second.pid) == (first.number, first.generation + 1, 20)
    assert sessions.resume(first.number, first.generation, 1, 30) is None
    assert sessions.renew(first.number, first.generation) is None
    assert sessions.close(first.number, first.generation) is None
    assert sessions.close(second.number, second.generation) == second
    assert list(sessions) == []


def test_there_are_not_too_many() -> None:
    """In all, and of one user; who leaves makes room, and no number is given twice."""
    sessions = _sessions(most=3, most_of_user=2)
    first, _ = sessions.open(1, 10, "a"), sessions.open(1, 11, "b")
    with pytest.raises(UsageError, match="2 sessions, 2 of user 1, expected fewer than 3, 2 of one user"):
        sessions.open(1, 12, "c")
    sessions.open(2, 20, "d")
    with pytest.raises(UsageError, match="3 sessions, 0 of user 3"):
        sessions.open(3, 30, "e")
    sessions.close(first.number, first.generation)
    assert sessions.open(3, 30, "e").number == 4


class SessionsMachine(RuleBasedStateMachine):
    """Any order of calls, against a model in plain words."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = _sessions(most=5, most_of_user=3)
        self.now, self.seen = 100.0, 0.0
        self.model: dict[int, tuple[int, int, float]] = {}
        """Generation, user and last renewal."""
        self.given = 0

    @rule(uid=st.integers(1, 3))
    def open(self, uid: int) -> None:
        """Let a client come."""
        of_user = sum(user == uid for _, user, _ in self.model.values())
        if len(self.model) >= 5 or of_user >= 3:
            with pytest.raises(UsageError):
                self.sessions.open(uid, 1, "x")
            return
        self.given += 1
        assert self.sessions.open(uid, 1, "x").number == self.given
        self.model[self.given] = (1, uid, self.seen)

    @rule(number=st.integers(1, 8), generation=st.integers(1, 3), uid=st.integers(1, 3))
    def resume(self, number: int, generation: int, uid: int) -> None:
        """Let a client come back."""
        is_there = self.model.get(number, (0, 0, 0.0))[:2] == (generation, uid)
        found = self.sessions.resume(number, generation, uid, 2)
        assert (found is not None) == is_there
        if is_there:
            self.model[number] = (generation + 1, uid, self.seen)

    @rule(number=st.integers(1, 8), generation=st.integers(1, 3))
    def renew(self, number: int, generation: int) -> None:
        """Let a client give a sign of life."""
        found = self.sessions.renew(number, generation)
        is_there = number in self.model and self.model[number][0] == generation
        assert (found is not None) == is_there
        if is_there:
            self.model[number] = (generation, self.model[number][1], self.seen)

    @rule(number=st.integers(1, 8), generation=st.integers(1, 3))
    def close(self, number: int, generation: int) -> None:
        """Let a client go."""
        is_there = number in self.model and self.model[number][0] == generation
        assert (self.sessions.close(number, generation) is not None) == is_there
        if is_there:
            del self.model[number]

    @rule(seconds=st.sampled_from([-5.0, 0.0, 1.0, 4.0, 6.0, 100.0]))
    def tick(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.seen += min(max(seconds, 0.0), LEASE / 2)
        ended = {session.number for session in self.sessions.tick(self.now)}
        assert ended == {number for number, (_, _, last) in self.model.items() if last + LEASE <= self.seen}
        for number in ended:
            del self.model[number]

    @invariant()
    def all_are_there(self) -> None:
        """Those of the model, and no others."""
        assert {one.number: one.generation for one in self.sessions} == {
            number: generation for number, (generation, _, _) in self.model.items()
        }


TestSessions = SessionsMachine.TestCase
