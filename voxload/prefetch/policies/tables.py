"""Tables: from what is held and ordered to the arrays that the core works on, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.errors import InternalError
from voxload.prefetch.line import STORAGE, EpochOrder, Held, Ints
from voxload.prefetch.placement import Placement
from voxload.prefetch.policies.copies import (
    COLUMNS,
    DROPS,
    END,
    FREE,
    GROUP,
    HEAD,
    LEFT,
    PRIMARY,
    QUEUES,
    READY,
    ROOM,
    ROWS,
    SAMPLE,
    SEEN,
    SIZE,
    SPARE,
    TIER,
    TOP,
    USE,
)
from voxload.prefetch.policies.protocol import State
from voxload.prefetch.policies.uses import NEVER, order_of, tabulate
from voxload.readers.scratch import address


@dataclass(frozen=True, slots=True)
class Tables:
    """What the core works on, and what it answers."""

    state: State
    epoch: EpochOrder
    order: Ints
    work: tuple[Ints, ...]
    """Rows, blocks, rooms, marks, uses, drops."""
    owner: npt.NDArray[np.int32]
    tier: npt.NDArray[np.int8]
    ready: Ints
    keep: npt.NDArray[np.int8]
    ends: Ints
    """As `tabulate` returns them."""

    @classmethod
    def of(cls, state: State, epoch: EpochOrder, ahead: Sequence[EpochOrder]) -> Tables:
        """Return the tables for one epoch."""
        line, held = state.line, state.held
        samples = len(line.sizes)
        orders = [order_of(each, samples, line.groups) for each in (epoch, *ahead)]
        steps = sum(order.shape[1] for order in orders)
        _check("step", np.array([state.step, state.step + steps]), NEVER)
        uses, bounds, ends = tabulate(orders, state.step, samples)
        rows = np.full((held.copies + orders[0].size, COLUMNS), -1, np.int64)
        for column, found in (
            (GROUP, held.group),
            (SAMPLE, held.sample),
            (TIER, held.tier),
            (READY, held.ready),
            (FREE, held.free),
        ):
            rows[: held.copies, column] = found
        for name, column, stop in (("group", GROUP, line.groups), ("sample", SAMPLE, samples), ("tier", TIER, 2)):
            _check(name, rows[: held.copies, column], stop)
        blocks = np.zeros((samples, 6), np.int64)
        blocks[:, HEAD], blocks[:, SEEN] = -1, -1
        blocks[:, USE], blocks[:, END], blocks[:, SIZE] = bounds[:-1], bounds[1:], line.sizes
        _check("size", blocks[:, SIZE], 1 << 63)
        rooms = np.zeros((2 * line.groups, 4), np.int64)
        rooms[:, ROOM] = [bytes_ for room in line.rooms for bytes_ in (room.memory, room.disk)]
        rooms[:, LEFT], rooms[:, SPARE], rooms[:, TOP] = rooms[:, ROOM], 0, -1
        marks = np.zeros(5, np.int64)
        marks[ROWS] = held.copies
        marks[QUEUES:] = -1
        work = (rows, blocks, rooms, marks, uses, np.zeros((len(rows), 3), np.int64))
        shape = orders[0].shape
        return cls(
            state=state,
            epoch=epoch,
            order=orders[0],
            work=work,
            owner=np.full(shape, -1, np.int32),
            tier=np.full(shape, STORAGE, np.int8),
            ready=np.zeros(shape, np.int64),
            keep=np.full(shape, -1, np.int8),
            ends=ends,
        )

    def addresses(self) -> npt.NDArray[np.uint64]:
        """Return where the six tables of `work` lie: the core's ``struct work``, good while these tables live."""
        return np.array([address(table) for table in self.work], np.uint64)

    @property
    def answers(self) -> tuple[npt.NDArray[Any], ...]:
        """Owner, tier, ready, keep."""
        return self.owner, self.tier, self.ready, self.keep

    def placement(self) -> Placement:
        """Return the plan that the core left."""
        _, _, _, marks, _, drops = self.work
        drops = drops[: marks[DROPS]]
        drops = drops[np.lexsort((drops[:, 2], drops[:, 1], drops[:, 0]))]
        groups = self.state.line.groups
        return Placement(
            epoch=self.epoch.epoch,
            first_step=self.state.step,
            samples=self.order,
            owner=self.owner,
            tier=self.tier,
            ready=self.ready,
            keep=self.keep,
            drop_bounds=np.searchsorted(drops[:, 0], np.arange(groups + 1)).astype(np.int64),
            drop_steps=drops[:, 1].copy(),
            drop_samples=drops[:, 2].copy(),
        )

    def held(self) -> Held:
        """Return what the tiers contain afterwards; a sample's primary first, then in the order of groups."""
        rows = self.work[0][: self.work[3][ROWS]]
        rows = rows[rows[:, GROUP] >= 0]
        rows = rows[np.lexsort((rows[:, GROUP], -rows[:, PRIMARY], rows[:, SAMPLE]))]
        return Held(
            group=rows[:, GROUP].astype(np.int32),
            sample=rows[:, SAMPLE].copy(),
            tier=rows[:, TIER].astype(np.int8),
            ready=rows[:, READY].copy(),
            free=rows[:, FREE].copy(),
        )


def _check(name: str, found: Ints, stop: int) -> None:
    """Refuse a state that no policy returned: the core looks up what it says, unchecked."""
    if found.size and not (found.min() >= 0 and found.max() < stop):
        raise InternalError(f"state: {name}", found=f"{found.min()} to {found.max()}", expected=f"0 to {stop - 1}")
