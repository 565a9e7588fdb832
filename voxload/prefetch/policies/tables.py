"""Tables: from what is held and ordered to the arrays that kernels work on, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import int8, int32, types

from voxload.prefetch.line import STORAGE, EpochOrder, Held, Ints
from voxload.prefetch.placement import Placement
from voxload.prefetch.policies.copies import (
    DROPS,
    END,
    HEAD,
    LEFT,
    QUEUES,
    ROOM,
    ROWS,
    SEEN,
    SIZE,
    SPARE,
    TOP,
    USE,
)
from voxload.prefetch.policies.heap import (
    COLUMNS,
    FREE,
    GROUP,
    PRIMARY,
    READY,
    SAMPLE,
    TIER,
)
from voxload.prefetch.policies.protocol import State
from voxload.prefetch.policies.uses import NUMBERS, STEPS, TABLE, order_of, tabulate

_several: Any = types.Tuple
WORK = _several((TABLE, TABLE, TABLE, NUMBERS, TABLE, TABLE))
"""What a kernel works on: rows, blocks, rooms, marks, uses, drops."""
ANSWERS = _several((types.Array(int32, 3, "C"), types.Array(int8, 3, "C"), STEPS, types.Array(int8, 3, "C")))
"""What it answers: owner, tier, ready, keep."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What a kernel works on, and what it answers."""

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
        blocks = np.zeros((samples, 6), np.int64)
        blocks[:, HEAD], blocks[:, SEEN] = -1, -1
        blocks[:, USE], blocks[:, END], blocks[:, SIZE] = bounds[:-1], bounds[1:], line.sizes
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

    @property
    def answers(self) -> tuple[npt.NDArray[Any], ...]:
        """Owner, tier, ready, keep."""
        return self.owner, self.tier, self.ready, self.keep

    def placement(self) -> Placement:
        """Return the plan that the kernel left."""
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
