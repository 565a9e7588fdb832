"""Router: where each block is to come from, and what it waits for until then."""

from __future__ import annotations

from voxload.prefetch.access import Access, Lane, Phase
from voxload.prefetch.cost import CostModel
from voxload.prefetch.events import From, Source
from voxload.prefetch.state import State

EARLY = 2
"""Own steps before a peer's block is due from which on it is asked for. Ranks train in step: one that was delivered t
knows that the others were delivered t - 1. What is stored for step t is stored when t - 1 was delivered, or earlier."""
SURE = 1
"""Own steps after which it must be there: one that was delivered t + 1 knows that the others were delivered t, and no
step is delivered before what is kept of it is stored."""
STORAGE_SOURCE = Source(From.STORAGE)
OWN_SOURCES = (Source(From.MEMORY), Source(From.DISK))
"""By tier."""


class Router:
    """Sends accesses into lanes, lets them wait, or finds that no place is left."""

    def __init__(self, state: State, costs: CostModel) -> None:
        self._state, self._costs = state, costs

    def route(self, access: Access) -> None:
        """Let an access wait for what it needs next; it has failed where no place is left."""
        state = self._state
        source = self.choose(access)
        if source is None and self._waits_for_store(access):
            state.lanes.park_for_store(access)
        elif source is None:
            state.lanes.leave(access)
            access.phase = Phase.FAILED
            access.step.missing -= 1
            self.settle(access)
        elif source.kind is From.PEER and state.now_at < access.ready - EARLY:
            state.lanes.park_for_step(access, access.ready - EARLY)
        else:
            state.lanes.queue(access, self.lane(access, source))

    def choose(self, access: Access) -> Source | None:
        """Return the place that is predicted to be fastest; None where there is none, or none yet."""
        state = self._state
        if self._waits_for_store(access):
            return None
        places = []
        if (tier := state.holdings.held.get(access.sample)) is not None:
            places.append(OWN_SOURCES[tier])
        if access.owner not in {-1, state.group} and access.owner not in state.trust.lost:
            places.append(Source(From.PEER, access.owner))
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

    def lane(self, access: Access, source: Source) -> Lane:
        """Return what a fetch queues for."""
        if source.kind is From.PEER:
            return Lane.PEER if self.is_sure(access) else Lane.AWAITED
        return Lane.STORAGE if source.kind is From.STORAGE else Lane.LOCAL

    def is_sure(self, access: Access) -> bool:
        """Tell whether a peer that has a block by the plan has it by now."""
        return self._state.now_at >= access.ready + SURE

    def settle(self, access: Access) -> None:
        """Note that nothing is left to be stored of an access, and let those go on that wait for it."""
        if self._state.holdings.settle(access):
            for waiting in self._state.lanes.at_store(access.sample):
                self.route(waiting)

    def leave_peer(self, group: int) -> None:
        """Let no access wait for a peer that is asked for nothing more."""
        for step in self._state.steps.values():
            for access in step.accesses:
                if access.owner == group and access.phase in {Phase.QUEUED, Phase.PARKED}:
                    self.route(access)
