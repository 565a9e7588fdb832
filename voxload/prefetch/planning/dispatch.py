"""Dispatch: how accesses become fetches, each from the fastest place that has the block."""

from __future__ import annotations

from collections.abc import Iterator

from voxload.prefetch.cost import CostModel
from voxload.prefetch.events import Fetch, FetchDone, FetchFailed, Source, SourceKind
from voxload.prefetch.planning.access import Access, FetchQueue, Flight, Phase
from voxload.prefetch.planning.state import PlannerState

EARLY = 2
"""Own steps before a peer's block is due from which on it is asked for. Ranks train in step: one that was delivered t
knows that the others were delivered t - 1. What is stored for step t is stored when t - 1 was delivered, or earlier."""
SURE = 1
"""Own steps after which it must be there: one that was delivered t + 1 knows that the others were delivered t, and no
step is delivered before what is kept of it is stored."""
STORAGE_SOURCE = Source(SourceKind.STORAGE)
OWN_SOURCES = (Source(SourceKind.MEMORY), Source(SourceKind.DISK))
"""By tier."""


class Router:
    """Sends accesses into queues, lets them wait, or finds that no place is left."""

    def __init__(self, state: PlannerState, costs: CostModel) -> None:
        self._state, self._costs = state, costs

    def route(self, access: Access) -> None:
        """Let an access wait for what it needs next; it has failed where no place is left."""
        state = self._state
        source = self.choose(access)
        if source is None and self._waits_for_store(access):
            state.queues.park_for_store(access)
        elif source is None:
            state.queues.leave(access)
            access.phase = Phase.FAILED
            access.step.missing -= 1
            self.settle(access)
        elif source.kind is SourceKind.PEER and state.now_at < access.ready - EARLY:
            state.queues.park_for_step(access, access.ready - EARLY)
        else:
            state.queues.enqueue(access, self.queue_of(access, source))

    def choose(self, access: Access) -> Source | None:
        """Return the place that is predicted to be fastest; None where there is none, or none yet."""
        state = self._state
        if self._waits_for_store(access):
            return None
        places = []
        if (tier := state.holdings.held.get(access.sample)) is not None:
            places.append(OWN_SOURCES[tier])
        if access.owner not in {-1, state.group} and access.owner not in state.trust.lost:
            places.append(Source(SourceKind.PEER, access.owner))
        places.append(STORAGE_SOURCE)
        places = [place for place in places if place not in access.refused]
        if len(places) < 2:
            return places[0] if places else None
        size = state.holdings.size(access.sample)
        return min(places, key=lambda place: self._costs.weighed(place, size))

    def _waits_for_store(self, access: Access) -> bool:
        holdings = self._state.holdings
        if access.owner != self._state.group or access.sample in holdings.held:
            return False
        return holdings.is_promised(access)

    def queue_of(self, access: Access, source: Source) -> FetchQueue:
        """Return what a fetch queues for."""
        if source.kind is SourceKind.PEER:
            return FetchQueue.PEER if self.is_sure(access) else FetchQueue.AWAITED
        return FetchQueue.STORAGE if source.kind is SourceKind.STORAGE else FetchQueue.LOCAL

    def is_sure(self, access: Access) -> bool:
        """Tell whether a peer that has a block by the plan has it by now."""
        return self._state.now_at >= access.ready + SURE

    def settle(self, access: Access) -> None:
        """Note that nothing is left to be stored of an access, and let those go on that wait for it."""
        if self._state.holdings.settle(access):
            for waiting in self._state.queues.at_store(access.sample):
                self.route(waiting)

    def leave_peer(self, group: int) -> None:
        """Let no access wait for a peer that is asked for nothing more."""
        for step in self._state.steps.values():
            for access in step.accesses:
                if access.owner == group and access.phase in {Phase.QUEUED, Phase.PARKED}:
                    self.route(access)


class Fetcher:
    """Takes accesses out of their queues, needed first, first."""

    def __init__(self, state: PlannerState, router: Router) -> None:
        self._state, self._router = state, router
        self._tickets = 0

    def issue(self, now: float) -> Iterator[Fetch]:
        """Give fetches until each queue is empty or as many are under way as may be."""
        state, is_settled = self._state, False
        while not is_settled:
            is_settled = True
            for queue in FetchQueue:
                while state.free_fetches(queue) and (access := state.queues.first(queue)) is not None:
                    source = self._router.choose(access)
                    if source is not None and self._router.queue_of(access, source) is queue:
                        yield self._launch(self._together(access, queue), source, now)
                    else:
                        self._router.route(access)  # things changed while it waited; now another queue may have work
                        is_settled = False

    def _launch(self, accesses: list[Access], source: Source, now: float) -> Fetch:
        state, queue = self._state, self._router.queue_of(accesses[0], source)
        for access in accesses:
            state.queues.leave(access)
            access.phase = Phase.FLYING
            access.step.busy += 1
        wait = state.limits.wait if queue is FetchQueue.AWAITED else 0.0
        nbytes = sum(state.holdings.size(access.sample) for access in accesses)
        ticket, self._tickets = self._tickets, self._tickets + 1
        state.taken[queue] += 1
        state.flights[ticket] = Flight(source, queue, tuple(accesses), nbytes, wait, now)
        return Fetch(ticket, source, tuple(access.part for access in accesses), wait)

    def land(self, event: FetchDone | FetchFailed) -> Flight | None:
        """Count a fetch that ended no longer; None where it is not under way."""
        flight = self._state.flights.pop(event.ticket, None)
        if flight is not None:
            self._state.taken[flight.queue] -= 1
            for access in flight.accesses:
                access.step.busy -= 1
                if access.step.is_cut:
                    self._state.drain(access.step)
        return flight

    def _together(self, first: Access, queue: FetchQueue) -> list[Access]:
        """Return what one fetch brings: of one file, in the order of need, and so little that others may begin."""
        state = self._state
        if queue is not FetchQueue.STORAGE or first.is_alone:
            return [first]
        most = min(state.limits.parts, -(-state.queues.length(queue) // state.free_fetches(queue)))
        if most < 2:
            return [first]
        # The step at hand does not wait for blocks of later ones.
        last_step = first.step.number + (0 if state.is_at_hand(first.step) else state.limits.window)
        result, nbytes = [first], state.holdings.size(first.sample)
        for access in state.queues.neighbours(first, last_step):
            nbytes += state.holdings.size(access.sample)
            if len(result) == most or nbytes > state.limits.bytes:
                break
            if self._router.choose(access) == STORAGE_SOURCE:
                result.append(access)
        return result
