"""Fetcher: issues the fetches that have a seat."""

from __future__ import annotations

from collections.abc import Iterator

from voxload.prefetch.access import Access, Flight, Lane, Phase
from voxload.prefetch.events import Fetch, FetchDone, FetchFailed, Source
from voxload.prefetch.router import STORAGE_SOURCE, Router
from voxload.prefetch.state import State


class Fetcher:
    """Takes accesses out of their lanes, needed first, first."""

    def __init__(self, state: State, router: Router) -> None:
        self._state, self._router = state, router
        self._tickets = 0

    def issue(self, now: float) -> Iterator[Fetch]:
        """Give fetches until each lane is empty or its seats are taken."""
        state, is_settled = self._state, False
        while not is_settled:
            is_settled = True
            for lane in Lane:
                while state.free_seats(lane) and (access := state.lanes.first(lane)) is not None:
                    source = self._router.choose(access)
                    if source is not None and self._router.lane(access, source) is lane:
                        yield self._launch(self._together(access, lane), source, now)
                    else:
                        self._router.route(access)  # things changed while it waited; now another lane may have work
                        is_settled = False

    def _launch(self, accesses: list[Access], source: Source, now: float) -> Fetch:
        state, lane = self._state, self._router.lane(accesses[0], source)
        for access in accesses:
            state.lanes.leave(access)
            access.phase = Phase.FLYING
            access.step.busy += 1
        wait = state.limits.wait if lane is Lane.AWAITED else 0.0
        nbytes = sum(state.holdings.size(access.sample) for access in accesses)
        ticket, self._tickets = self._tickets, self._tickets + 1
        state.taken[lane] += 1
        state.flights[ticket] = Flight(source, lane, tuple(accesses), nbytes, wait, now)
        return Fetch(ticket, source, tuple(access.part for access in accesses), wait)

    def land(self, event: FetchDone | FetchFailed) -> Flight | None:
        """Take back the seat of a fetch that ended; None where it is not under way."""
        flight = self._state.flights.pop(event.ticket, None)
        if flight is not None:
            self._state.taken[flight.lane] -= 1
            for access in flight.accesses:
                access.step.busy -= 1
                if access.step.is_cut:
                    self._state.drain(access.step)
        return flight

    def _together(self, first: Access, lane: Lane) -> list[Access]:
        """Return what one fetch brings: of one file, in the order of need, and so little that no seat stays idle."""
        state = self._state
        if lane is not Lane.STORAGE or first.is_alone:
            return [first]
        most = min(state.limits.parts, -(-state.lanes.length(lane) // state.free_seats(lane)))
        if most < 2:
            return [first]
        # The step at hand does not wait for blocks of later ones.
        last_step = first.step.number + (0 if state.is_at_hand(first.step) else state.limits.window)
        result, nbytes = [first], state.holdings.size(first.sample)
        for access in state.lanes.neighbours(first, last_step):
            nbytes += state.holdings.size(access.sample)
            if len(result) == most or nbytes > state.limits.bytes:
                break
            if self._router.choose(access) == STORAGE_SOURCE:
                result.append(access)
        return result
