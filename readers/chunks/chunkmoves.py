"""ChunkMoves: reads of chunks that were made before, made again at other places of the volume.

Of crops at random none comes twice, but all are the same read to the last number, save for where their boxes begin and
end: from there on no file has to be opened, no array looked at and no plan made by Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import gt

import numpy as np
import numpy.typing as npt

from voxload.geometry import Box
from voxload.readers.chunks.nativesources import SHARD_COLUMNS, SHARDS_PLACE
from voxload.readers.maderead import MadeRead, MovedBoxes, Moves, Numbers
from voxload.readers.pasting.kernels import AXES, WANTED_TO
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.protocol import NOTHING, ReadCost
from voxload.readers.scratch import address

CostOf = Callable[[Box], ReadCost]
"""What the chunks cost that hold a box in stored axis order; asks nothing of a reader, which may be closed by then."""


@dataclass(frozen=True, slots=True)
class VolumeAxes:
    """Where the spatial axes of a volume are among those that are stored, and what its boxes cost."""

    places: tuple[int | None, int | None, int | None]
    """Of d, h and w; None of one that is not stored."""
    cost: CostOf

    @classmethod
    def of(cls, axes: str, cost: CostOf) -> VolumeAxes:
        """Return those of stored axes, one letter each."""
        d, h, w = (axes.index(axis) if axis in axes else None for axis in "DHW")
        return cls((d, h, w), cost)


@dataclass(frozen=True, slots=True)
class ListedShards:
    """Shards of an array of few, those of which it is known where their chunks lie."""

    extents: Place
    """Elements of a shard along each axis."""
    outer: Place
    """Shards along each axis."""
    rows: Mapping[int, tuple[Numbers, tuple[object, ...]]]
    """By its number along the grid, ``struct shard`` and what that points to; the descriptor stands for none."""

    @property
    def count(self) -> int:
        """How many the array has."""
        return int(np.prod(self.outer))

    def holding(self, boxes: Sequence[Box]) -> tuple[int, ...] | None:
        """Return the numbers of the shards that hold boxes; None where one of them is not known."""
        found: dict[int, None] = {}
        for box in boxes:
            spans = [range(lo // n, -(-hi // n)) for lo, hi, n in zip(box.start, box.stop, self.extents, strict=True)]
            for place in itertools.product(*spans):
                number = 0
                for index, count in zip(place, self.outer, strict=True):
                    number = number * count + index
                if number not in self.rows:
                    return None
                found[number] = None
        return tuple(found)

    def listed(self, numbers: Iterable[int]) -> tuple[Numbers, tuple[object, ...]]:
        """Return the list that the core takes, in which some shards are to be opened, and what owns it."""
        listed = np.zeros((self.count, SHARD_COLUMNS), np.int64)
        listed[:, 0] = -1
        owners: list[object] = [listed]
        for number in numbers:
            row, told = self.rows[number]
            listed[number] = row
            listed[number, 0] = 0
            owners += told
        return listed, tuple(owners)


@dataclass(frozen=True, slots=True)
class ChunkMoves:
    """See Moves; of boxes of chunks."""

    boxes: npt.NDArray[np.uint64]
    """``struct wanted`` of each box, of arrays that begin at address 0."""
    extents: Place
    """Of the array, or of all its chunks, in stored axis order: no box may leave it."""
    axes: VolumeAxes
    """Where boxes are moved."""
    volume: Numbers
    """``struct volume``."""
    shards: ListedShards | None
    """None where chunks do not lie in shards."""

    @property
    def is_partial(self) -> bool:
        """See Moves."""
        return self.shards is not None and len(self.shards.rows) < self.shards.count

    def moved(self, by: Sequence[int]) -> MovedBoxes | None:
        """See Moves."""
        pad = AXES - len(self.extents)
        step = [0] * self.boxes.shape[1]
        for place, one in zip(self.axes.places, by, strict=True):
            if place is not None:
                step[pad + place] = step[AXES + pad + place] = one
            elif one:
                return None
        boxes = self.boxes.view(np.int64) + np.array(step, np.int64)
        stored: list[Box] = []
        for row in boxes[:, : 2 * AXES].tolist():
            start, stop = tuple(row[pad:AXES]), tuple(row[AXES + pad :])
            if min(start) < 0 or any(map(gt, stop, self.extents)):
                return None
            stored.append(Box(start, stop))
        shards = () if self.shards is None else self.shards.holding(stored)
        if shards is None:
            return None
        cost = NOTHING
        for box in stored:
            cost += self.axes.cost(box)
        return MovedBoxes(boxes, shards, cost)

    def together(self, made: MadeRead, moved: Sequence[tuple[MovedBoxes, int]]) -> MadeRead:
        """See Moves; a chunk that several boxes want is read and decoded once."""
        boxes = np.concatenate([one.boxes for one, _ in moved])
        boxes[:, WANTED_TO] += np.repeat([to for _, to in moved], [len(one.boxes) for one, _ in moved])
        if self.shards is None:
            return made.of_boxes(boxes, None, ())
        listed, owners = self.shards.listed(dict.fromkeys(number for one, _ in moved for number in one.shards))
        volume = self.volume.copy()
        volume[SHARDS_PLACE] = address(listed)
        return made.of_boxes(boxes, volume, owners)

    def joined(self, earlier: Moves) -> Moves:
        """See Moves."""
        if self.shards is None or not isinstance(earlier, ChunkMoves) or earlier.shards is None:
            return self
        return replace(self, shards=replace(self.shards, rows={**earlier.shards.rows, **self.shards.rows}))
