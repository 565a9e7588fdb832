"""Sessions: who is connected, and until when each of them counts; pure, with the time given by who asks.

Rules of this file:

1. A lease runs from the moment that its session is opened, not from its first renewal.
2. Time in which the service itself did not run does not count: after a stop all clients still have the lease that they
   had, and the renewals that came meanwhile are read before any lease ends.
3. A number is given once. With the service's boot token it names a session for ever, and its generation says which
   connection speaks for it: one that was replaced is not listened to any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class Session:
    """A client that counts."""

    number: int
    generation: int
    uid: int
    """User, as the kernel says."""
    pid: int
    name: str
    """What people call the job."""
    ends: float
    """When it ends unless it is renewed, by `Sessions.clock`."""


class Sessions:
    """All sessions of a service; used by one thread.

    Parameters
    ----------
    lease
        Seconds for which a session counts without a renewal.
    most
        Sessions at once.
    most_of_user
        Of one user.
    """

    def __init__(self, *, lease: float, most: int, most_of_user: int) -> None:
        self.lease = lease
        self.clock = 0.0
        """Seconds that this has seen pass."""
        self.lapsed = 0
        """Sessions that have ended with their lease."""
        self._most, self._most_of_user = most, most_of_user
        self._seen: float | None = None
        self._given = 0
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        """Iterate over them, in the order of their numbers."""
        return iter(tuple(self._sessions.values()))

    def find(self, number: int) -> Session | None:
        """Return a session; None where it has ended."""
        return self._sessions.get(number)

    def open(self, uid: int, pid: int, name: str) -> Session:
        """Begin a session; raises UsageError where there are too many."""
        of_user = sum(one.uid == uid for one in self._sessions.values())
        if len(self._sessions) >= self._most or of_user >= self._most_of_user:
            raise UsageError(
                "service",
                found=f"{len(self._sessions)} sessions, {of_user} of user {uid}",
                expected=f"fewer than {self._most}, {self._most_of_user} of one user",
                remedy="end a job, or let the service have more",
            )
        self._given += 1
        session = Session(self._given, 1, uid, pid, name, self.clock + self.lease)
        self._sessions[session.number] = session
        return session

    def resume(self, number: int, generation: int, uid: int, pid: int) -> Session | None:
        """Go on with a session from another connection; None where it is not there, another user's, or gone on with."""
        found = self._sessions.get(number)
        if found is None or (found.generation, found.uid) != (generation, uid):
            return None
        return self._set(replace(found, generation=generation + 1, pid=pid, ends=self.clock + self.lease))

    def renew(self, number: int, generation: int) -> Session | None:
        """Let a session count anew from now on; None where it has ended, or another connection speaks for it."""
        found = self._sessions.get(number)
        if found is None or found.generation != generation:
            return None
        return self._set(replace(found, ends=self.clock + self.lease))

    def close(self, number: int, generation: int) -> Session | None:
        """End a session; returns it, or None where it has ended, or another connection speaks for it."""
        found = self._sessions.get(number)
        if found is None or found.generation != generation:
            return None
        return self._sessions.pop(number)

    def tick(self, now: float) -> list[Session]:
        """Let time pass, and return the sessions that ended with it.

        To be called once all that clients said until `now` was heard, and twice a lease at least.
        """
        step = 0.0 if self._seen is None else max(0.0, now - self._seen)
        self._seen = now
        self.clock += min(step, self.lease / 2)  # more has passed only where nobody was here to see it
        ended = [one for one in self._sessions.values() if one.ends <= self.clock]
        for one in ended:
            del self._sessions[one.number]
        self.lapsed += len(ended)
        return ended

    def _set(self, session: Session) -> Session:
        self._sessions[session.number] = session
        return session
