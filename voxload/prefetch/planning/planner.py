"""Planner: one rank's plans become fetches, stores and drops, event by event; pure.

It has no thread, clock or file: whoever carries its instructions out, threads or a simulation, tells it what happened
and when, and does what it answers, in the order of the answers::

    planner = Planner(line, group, limits=Limits(), costs=CostModel(), files=files, held=inventory)
    planner.extend(placement.of(group))                  # again whenever the next epoch is placed
    for slot in range(slots):
        carry_out(planner.handle(SlotFree(now(), slot)))
    while steps are wanted:
        event = next of: FetchDone, FetchFailed, Stored, Delivered, SlotFree, PeerLost, Waited(when Wake says so)
        carry_out(planner.handle(event))

1. A slot, whatever its number, belongs to the planner from `SlotFree` on until `Ready` or `Failed` of its step. Steps
   come out in order, one slot each; steps without a block on this rank do not come out, but pass by themselves as soon
   as the one before was delivered. `Delivered` follows each that came out, a failed one too.
2. `Ready` is given when all blocks of the step are there and what is to be stored of them is stored: from then on the
   consumer may change the batch.
3. Fetches are issued in the order of need, step before place, each kind (`FetchQueue`) by itself. A block comes from
   where the plan says unless another place is predicted to be faster, the storage with a handicap (`CostModel`). What
   fails there comes from the next best place. A step fails only where the storage failed for one of its blocks and no
   other place has it.
4. Blocks of one file that wait for the storage go into one fetch when there are more of them than fetches that may
   begin. Blocks of later steps ride along, but never with the step at hand.
5. A sample that occurs again while it is being fetched is fetched for each access. Only where the plan takes the later
   one from this rank's own tier, it waits for the store of the earlier one.
6. A peer is asked from two of the own steps before its block is due, for clocks of ranks may differ. Until one step
   after it is due, an answer that it is absent only means later: it is asked again, the step at hand for no longer than
   `Limits.patience`.
7. `extend` and `cut` give no instructions; those that follow from them come with the next event, `Waited` for one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from voxload.errors import InternalError, UsageError
from voxload.prefetch.cost import CostModel
from voxload.prefetch.events import (
    Delivered,
    Event,
    Failed,
    Failure,
    FetchDone,
    FetchFailed,
    Instruction,
    PeerLost,
    Ready,
    SlotFree,
    Source,
    SourceKind,
    Stored,
    Wake,
)
from voxload.prefetch.line import Ints, Line
from voxload.prefetch.placement import RankPlan
from voxload.prefetch.planning.access import Access, FetchQueue, Flight, Phase, Step
from voxload.prefetch.planning.dispatch import STORAGE_SOURCE, Fetcher, Router
from voxload.prefetch.planning.invariants import check
from voxload.prefetch.planning.limits import Limits
from voxload.prefetch.planning.state import PlannerState


class Planner:
    """Plans the fetches of one rank; not safe to use from several threads at once.

    Parameters
    ----------
    line, group
        What is shared, and which of its groups this rank belongs to.
    limits
        How much is under way at once.
    costs
        This planner's own: it learns from every fetch.
    files
        File of each sample, by sample index: equal numbers mean one file.
    held
        Tier of each block that this rank's tiers hold at the start.

    Raises
    ------
    InternalError
        An event cannot be: a ticket that is not under way, a step that was not ready.
    """

    def __init__(
        self,
        line: Line,
        group: int,
        *,
        limits: Limits,
        costs: CostModel,
        files: Ints,
        held: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        if not 0 <= group < line.groups:
            raise UsageError("group", found=str(group), expected=f"0 to {line.groups - 1}")
        self._files, self._costs, self._limits = files, costs, limits
        self._state = PlannerState(line, group, limits=limits, held=held)
        self._router = Router(self._state, costs)
        self._fetcher = Fetcher(self._state, self._router)

    @property
    def held(self) -> Mapping[int, int]:
        """Tier of each block that this rank's tiers hold now."""
        return MappingProxyType(self._state.holdings.held)

    @property
    def clock(self) -> int:
        """The last step that was delivered, or the one before the first; empty ones count. -1 before the first plan."""
        return self._state.now_at

    @property
    def planned(self) -> int:
        """The step behind the last planned one; 0 before the first plan."""
        return self._state.schedule.end or 0

    @property
    def distrusted(self) -> frozenset[int]:
        """Groups that are asked for nothing more."""
        return frozenset(self._state.trust.lost)

    def extend(self, plan: RankPlan) -> None:
        """Append a coming epoch's plan; its first step is the one behind the last, or a later one."""
        self._state.schedule.extend(plan)
        if self._state.clock is None:
            self._state.clock, self._state.next = plan.first_step - 1, plan.first_step

    def cut(self, step: int) -> None:
        """Forget everything planned from a step on; drops and stores too.

        Slots of steps that were ready come back by `SlotFree`; `Delivered` must not follow. Those still being filled
        come back by themselves when what is under way there ended. What was stored for such steps already is in `held`.
        """
        state = self._state
        if step <= state.now_at:
            raise InternalError("cut", found=f"step {step}", expected=f"{state.now_at + 1} or later")
        state.schedule.cut(step)
        state.next = min(state.next, step)
        state.out = deque(number for number in state.out if number < step)
        for number in [number for number in state.steps if number >= step]:
            cut = state.steps.pop(number)
            cut.is_cut = True
            for access in cut.accesses:
                state.queues.leave(access)
                state.holdings.settle(access)
            state.draining[cut.slot] = cut
            state.drain(cut)

    def validate(self) -> None:
        """Raise an `InternalError` that names the first invariant that does not hold; for tests and hunts for bugs."""
        check(self._state)

    def handle(self, event: Event) -> list[Instruction]:
        """Take in what happened; return what is to be done now, in this order."""
        answer: list[Instruction] = []
        match event:
            case SlotFree():
                self._slot_free(event.slot)
            case FetchDone():
                self._done(event)
            case FetchFailed():
                answer.extend(self._failed(event))
            case Stored():
                answer.extend(self._stored(event))
            case Delivered():
                self._delivered(event.step)
            case PeerLost():
                if self._state.trust.lose(event.group):
                    self._router.leave_peer(event.group)
            case _:
                pass  # time passed
        answer.extend(self._proceed(event.now))
        return answer

    # What events say.

    def _slot_free(self, slot: int) -> None:
        state = self._state
        if slot in state.free or slot in state.draining or any(step.slot == slot for step in state.steps.values()):
            raise InternalError("SlotFree", found=f"slot {slot}", expected="one that is not being filled")
        state.free.append(slot)

    def _delivered(self, step: int) -> None:
        out = self._state.out
        if not out or out[0] != step:
            raise InternalError("Delivered", found=f"step {step}", expected=f"the first of {list(out)}")
        self._state.clock = out.popleft()

    def _stored(self, event: Stored) -> Iterator[Instruction]:
        holdings = self._state.holdings
        if event.sample not in holdings.storing:
            raise InternalError("Stored", found=f"sample {event.sample}", expected="one that is being stored")
        access, drop = holdings.stored(event.sample, is_kept=event.is_kept)
        if drop is not None:
            yield drop
        access.step.busy -= 1
        if access.step.is_cut:
            self._state.drain(access.step)
        else:
            self._router.settle(access)

    def _land(self, event: FetchDone | FetchFailed) -> Flight:
        flight = self._fetcher.land(event)
        if flight is None:
            raise InternalError(type(event).__name__, found=f"ticket {event.ticket}", expected="one that is under way")
        return flight

    def _done(self, event: FetchDone) -> None:
        flight = self._land(event)
        if flight.source.kind is SourceKind.PEER:
            self._judge(flight, event.seconds)
        if flight.queue is not FetchQueue.AWAITED:
            # How long a peer waited for a block says nothing about how fast it sends one.
            self._costs.observe(flight.source, flight.nbytes, event.seconds)
        for access in flight.accesses:
            if not access.step.is_cut:
                access.phase = Phase.THERE
                access.step.missing -= 1

    def _judge(self, flight: Flight, seconds: float) -> None:
        """Hold it against a peer when it is much slower than the storage."""
        slow = max(self._limits.slow, self._costs.weighed(STORAGE_SOURCE, flight.nbytes))
        if seconds - flight.wait > slow:
            self._strike(flight.source.group)
        else:
            self._state.trust.good(flight.source.group)

    def _strike(self, group: int) -> None:
        if self._state.trust.strike(group):
            self._router.leave_peer(group)

    def _failed(self, event: FetchFailed) -> Iterator[Instruction]:
        flight = self._land(event)
        source = flight.source
        if source.kind is SourceKind.PEER and event.failure is not Failure.ABSENT:
            self._strike(source.group)
        for access in flight.accesses:
            if access.step.is_cut:
                continue
            if source.kind is SourceKind.STORAGE:
                self._storage_failed(access, flight, event.ticket)
            elif source.kind is SourceKind.PEER:
                self._peer_failed(access, flight, event)
            else:
                yield from self._own_failed(access, source)

    def _storage_failed(self, access: Access, flight: Flight, ticket: int) -> None:
        if len(flight.accesses) > 1:
            access.is_alone = True  # perhaps one of them is broken: each by itself tells which
        else:
            access.refused.add(STORAGE_SOURCE)
            access.ticket = ticket
        self._router.route(access)

    def _own_failed(self, access: Access, source: Source) -> Iterator[Instruction]:
        # Where it was dropped meanwhile nothing is wrong; else it is damaged, and is not asked for again.
        if (drop := self._state.holdings.lose(access.sample)) is not None:
            yield drop
            access.refused.add(source)
        self._router.route(access)

    def _peer_failed(self, access: Access, flight: Flight, event: FetchFailed) -> None:
        if event.failure is Failure.ABSENT and self._may_come(access, event.now):
            self._state.queues.park_until(access, max(event.now, flight.since + self._limits.wait))
            return
        if event.failure is Failure.WRONG and access.wrongs == 0:
            access.wrongs = 1  # damaged on the way perhaps; damaged in the peer's tier it stays
        else:
            access.refused.add(flight.source)
        self._router.route(access)

    def _may_come(self, access: Access, now: float) -> bool:
        """Tell whether it is worth while to ask a peer again for a block that it has not got."""
        if access.absent_since is None:
            access.absent_since = now
        is_impatient = now - access.absent_since >= self._limits.patience
        is_late = self._state.is_at_hand(access.step) and is_impatient
        return not self._router.is_sure(access) and not is_late

    # What follows.

    def _proceed(self, now: float) -> Iterator[Instruction]:
        yield from self._advance()
        for access in self._state.queues.at_time(now):
            self._router.route(access)
        self._assign()
        yield from self._store()
        yield from self._deliver()
        yield from self._fetcher.issue(now)
        at = self._state.queues.next_time()
        if at is not None:
            yield Wake(at)

    def _advance(self) -> Iterator[Instruction]:
        """Let empty steps pass, and do what follows from the steps delivered so far."""
        state = self._state
        if state.clock is None:
            return
        while state.clock + 1 < self.planned and state.schedule.is_empty(state.clock + 1):
            state.clock += 1
        state.next = max(state.next, state.clock + 1)
        state.schedule.forget(state.clock + 1)
        for step, sample in state.schedule.drops(state.clock + 1):
            if (drop := state.holdings.drop(sample, step)) is not None:
                yield drop
        for access in state.queues.at_step(state.clock):
            self._router.route(access)
        for access in state.queues.members(FetchQueue.AWAITED):
            if self._router.is_sure(access):
                self._router.route(access)

    def _assign(self) -> None:
        """Give free slots to the next steps."""
        state = self._state
        while state.free and state.next < self.planned:
            row = state.schedule.row(state.next)
            state.next += 1
            if not row:
                continue
            step = Step(state.next - 1, state.free.popleft(), missing=len(row))
            state.steps[step.number] = step
            for place, sample, owner, ready, keep in row:
                access = Access(step, place, sample, owner, ready, keep, int(self._files[sample]))
                step.accesses.append(access)
                state.holdings.promise(access)
            for access in step.accesses:
                self._router.route(access)

    def _store(self) -> Iterator[Instruction]:
        for access, store in self._state.holdings.stores(self._state.now_at):
            if store is None:
                self._router.settle(access)
            else:
                access.step.busy += 1
                yield store

    def _deliver(self) -> Iterator[Instruction]:
        state = self._state
        while state.steps:
            step = next(iter(state.steps.values()))
            if not step.is_settled:
                return
            del state.steps[step.number]
            state.out.append(step.number)
            if step.failure >= 0:
                yield Failed(step.number, step.slot, step.failure)
            else:
                yield Ready(step.number, step.slot)
