"""A planner that is told event by event, its plans, and what it answers."""

from __future__ import annotations

import math

import numpy as np

from voxload.prefetch.cost import CostModel
from voxload.prefetch.events import (
    Delivered,
    Event,
    Failure,
    Fetch,
    FetchDone,
    FetchFailed,
    Instruction,
    SlotFree,
    Source,
    SourceKind,
    Store,
    Stored,
)
from voxload.prefetch.line import MEMORY, Line, Room
from voxload.prefetch.placement import RankPlan
from voxload.prefetch.planning.limits import Limits
from voxload.prefetch.planning.planner import Planner

SIZE = 100
STORAGE = Source(SourceKind.STORAGE)
OWN_MEMORY = Source(SourceKind.MEMORY)
Cell = tuple[int, ...]
"""Sample, owner, ready and keep of an access; what is left out is -1, but `ready` is 0."""


def peer(group: int) -> Source:
    """Return a peer."""
    return Source(SourceKind.PEER, group)


def plan(*steps: list[Cell], first_step: int = 0, drops: tuple[tuple[int, int], ...] = ()) -> RankPlan:
    """Return a plan; `drops` are steps and samples."""
    batch = max(len(step) for step in steps)
    rows = [[*step, *[(-1,)] * (batch - len(step))] for step in steps]
    cells = np.array([[(*cell, *(-1, 0, -1)[len(cell) - 1 :]) for cell in row] for row in rows])
    owner = cells[..., 1].astype(np.int32)
    return RankPlan(
        epoch=0,
        first_step=first_step,
        samples=cells[..., 0],
        owner=owner,
        tier=np.where(owner < 0, -1, MEMORY).astype(np.int8),
        ready=cells[..., 2],
        keep=cells[..., 3].astype(np.int8),
        drop_steps=np.array([step for step, _ in drops], np.int64),
        drop_samples=np.array([sample for _, sample in drops], np.int64),
    )


class Bench:
    """A planner of group 0 of three, told by hand; every answer is validated."""

    def __init__(
        self,
        *plans: RankPlan,
        slots: int = 1,
        limits: Limits | None = None,
        files: list[int] | None = None,
        held: dict[int, int] | None = None,
        room: int = 10 * SIZE,
        costs: CostModel | None = None,
    ) -> None:
        line = Line(sizes=np.full(50, SIZE), rooms=(Room(memory=room, disk=room),) * 3)
        self.planner = Planner(
            line,
            0,
            limits=limits or Limits(),
            costs=costs or CostModel(handicap=math.inf),
            files=np.array(files or range(50)),
            held=held or {},
        )
        self.now = 0.0
        for one in plans:
            self.planner.extend(one)
        self.answer: list[Instruction] = []
        for slot in range(slots):
            self.answer += self.tell(SlotFree(self.now, slot))

    def tell(self, event: Event) -> list[Instruction]:
        """Tell the planner."""
        answer = self.planner.handle(event)
        self.planner.validate()
        return answer

    def done(self, ticket: int, seconds: float = 0.01) -> list[Instruction]:
        """End a fetch well."""
        return self.tell(FetchDone(self.now, ticket, SIZE, seconds))

    def failed(self, ticket: int, failure: Failure) -> list[Instruction]:
        """End a fetch badly."""
        return self.tell(FetchFailed(self.now, ticket, failure, 0.01))

    def stored(self, sample: int, *, is_kept: bool = True) -> list[Instruction]:
        """End a store."""
        return self.tell(Stored(self.now, sample, is_kept=is_kept))

    def delivered(self, step: int) -> list[Instruction]:
        """Let the consumer have a step."""
        return self.tell(Delivered(self.now, step))


def fetches(answer: list[Instruction]) -> list[tuple[int, Source, list[tuple[int, int]]]]:
    """Return ticket, source, and steps and places of the fetches."""
    return [
        (one.ticket, one.source, [(part.step, part.place) for part in one.parts])
        for one in answer
        if isinstance(one, Fetch)
    ]


def stores(answer: list[Instruction]) -> list[tuple[int, int]]:
    """Return samples and tiers of the stores."""
    return [(one.part.sample, one.tier) for one in answer if isinstance(one, Store)]
