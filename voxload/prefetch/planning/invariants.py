"""check: what always holds between two events of a planner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from voxload.errors import InternalError
from voxload.prefetch.planning.access import Access, FetchQueue, Phase
from voxload.prefetch.planning.state import PlannerState

Findings = Iterator[tuple[str, str]]
"""What was found, and what was expected."""


def check(state: PlannerState) -> None:
    """Raise an `InternalError` that names the first invariant that does not hold."""
    for name, rule in RULES.items():
        for found, expected in rule(state):
            raise InternalError(f"planner: {name}", found=found, expected=expected)


def _accesses(state: PlannerState) -> list[Access]:
    return [access for step in state.steps.values() for access in step.accesses]


def _slots(state: PlannerState) -> Findings:
    uses = Counter([*state.free, *state.draining, *(step.slot for step in state.steps.values())])
    for slot, count in uses.items():
        if count != 1:
            yield f"slot {slot} in {count} places", "1"


def _order(state: PlannerState) -> Findings:
    steps = [state.now_at, *state.out, *state.steps, state.next]
    if any(one >= other for one, other in pairwise(steps)):
        yield f"delivered, ready, being filled, next: {steps}", "ascending"
    if state.schedule.end is not None and state.next > max(state.schedule.end, state.now_at + 1):
        yield f"next step {state.next}", f"at most {state.schedule.end}"


def _blocks(state: PlannerState) -> Findings:
    flying = Counter(id(access) for flight in state.flights.values() for access in flight.accesses)
    for access in _accesses(state):
        if flying[id(access)] != (access.phase is Phase.FLYING):
            yield f"block {access.key} {access.phase.name} in {flying[id(access)]} fetches", "one if it is flying"
    for step in state.steps.values():
        missing = sum(access.phase not in {Phase.THERE, Phase.FAILED} for access in step.accesses)
        unkept = sum(not access.is_kept for access in step.accesses)
        if (step.missing, step.to_keep) != (missing, unkept):
            yield f"step {step.number}: {step.missing} missing, {step.to_keep} to keep", f"{missing}, {unkept}"


def _under_way(state: PlannerState) -> Findings:
    busy: Counter[int] = Counter()
    for access in (access for flight in state.flights.values() for access in flight.accesses):
        busy[id(access.step)] += 1
    for access in state.holdings.storing.values():
        busy[id(access.step)] += 1
    for step in [*state.steps.values(), *state.draining.values()]:
        if step.busy != busy[id(step)]:
            yield f"step {step.number} busy {step.busy} times", str(busy[id(step)])
    for step in state.draining.values():
        if not step.is_cut or step.busy == 0:
            yield f"step {step.number} draining, busy {step.busy} times", "cut and busy"


def _fetches_at_once(state: PlannerState) -> Findings:
    taken = Counter(flight.queue for flight in state.flights.values())
    for queue in FetchQueue:
        if state.taken[queue] != taken[queue] or taken[queue] > state.most_fetches[queue]:
            yield (
                f"{state.taken[queue]} of {queue.name} counted, {taken[queue]} taken",
                f"at most {state.most_fetches[queue]}",
            )


def _idle(state: PlannerState) -> Findings:
    for queue in FetchQueue:
        queued = sum(access.queue is queue for access in _accesses(state))
        if state.queues.length(queue) != queued:
            yield f"{state.queues.length(queue)} in the queue of {queue.name}", str(queued)
        if queued and state.free_fetches(queue):
            yield f"{queued} waiting for {queue.name}", f"none while {state.free_fetches(queue)} more may be under way"
    if state.free and state.schedule.end is not None and state.next < state.schedule.end:
        yield f"free slots {list(state.free)}", f"none while step {state.next} has none"


def _progress(state: PlannerState) -> Findings:
    is_waiting = state.flights or state.holdings.storing or state.out or state.queues.next_time() is not None
    if state.steps and not is_waiting:
        yield f"steps {list(state.steps)} with nothing under way", "a fetch, a store, a delivery or a time to wait for"


def _bytes(state: PlannerState) -> Findings:
    holdings = state.holdings
    used = Counter[int]()
    for sample, tier in holdings.held.items():
        used[tier] += holdings.size(sample)
    for sample, access in holdings.storing.items():
        used[access.keep] += holdings.size(sample)
    for tier, room in holdings.rooms.items():
        if holdings.used[tier] != used[tier] or used[tier] > room:
            yield f"tier {tier}: {holdings.used[tier]} bytes counted, {used[tier]} used", f"at most {room}"


RULES: dict[str, Callable[[PlannerState], Findings]] = {
    "a slot belongs to one step": _slots,
    "steps come in order": _order,
    "a block has one phase": _blocks,
    "what is under way is counted": _under_way,
    "fetches at once are limited": _fetches_at_once,
    "nothing waits without need": _idle,
    "something always happens": _progress,
    "tiers have room": _bytes,
}
