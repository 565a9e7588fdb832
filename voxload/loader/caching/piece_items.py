"""PieceItems: items that are pasted from the units of their samples, in whatever order these come.

Rules of this file:

1. A unit of which an item has all voxels, and as they are stored, is brought to its place in the item. Others are
   brought to the slot's bytes behind its items, and pasted from there; both stay as they are until the batch is made.
2. Who brings an item's last unit finishes it: turns its vectors, and reads its targets.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import torch

from voxload.augment.orientation import Orientation
from voxload.cache.memory.tier import MemoryTier
from voxload.cache.protocol import BlockKey, Tier
from voxload.data.transpose import copy_turned
from voxload.errors import InternalError
from voxload.geometry import Box
from voxload.loader.batch import Batch
from voxload.loader.caching.items import BatchFilling, EpochItems, ExpectedSteps, KnownTargets
from voxload.loader.caching.piece_units import ItemPlan, PieceUnits, Share
from voxload.loader.reading.batch_read import made
from voxload.loader.reading.sample_reads import SampleRead
from voxload.loader.reading.staging import ALIGNMENT, BatchLayout
from voxload.prefetch.events import Part
from voxload.prefetch.execution.resources import Arrival, Filling
from voxload.prefetch.line import Ints
from voxload.readers.protocol import ReadCost, Volume

_UPRIGHT = Orientation()


class PieceItems:
    """Items that are pasted from units; see Items.

    Parameters
    ----------
    units
        What there is.
    """

    def __init__(self, units: PieceUnits) -> None:
        augment = units.data.augment
        self.samples = len(units.data)
        self.are_drawn = augment is not None
        self.are_searched = augment is not None and augment.centres is not None
        self._units = units
        self._targets = KnownTargets(units.data)
        self._steps = ExpectedSteps()

    def layout(self, batch_size: int) -> BatchLayout:
        """Return what a slot holds: the items, where all are of one shape, and bytes for the rest."""
        units = self._units
        beside = batch_size * units.scratch(ALIGNMENT)
        if units.is_even:
            return BatchLayout(batch_size, units.data.layout(0), beside)
        slack = ALIGNMENT * len(units.data.field_names)
        return BatchLayout(batch_size, (), beside + batch_size * (units.largest() + slack))

    def rows(self, epoch: EpochItems) -> Ints:
        """See Items."""
        found: list[list[int]] = []
        for samples, repeats in zip(epoch.samples.tolist(), epoch.repeats.tolist(), strict=True):
            units: dict[int, None] = {}
            for sample, repeat in zip(samples, repeats, strict=True):
                if sample >= 0:
                    units |= self._units.plan(sample, epoch.number, repeat).units
            found.append(list(units))
        rows = np.full((len(found), max(map(len, found), default=0)), -1, np.int64)
        for row, units_of in zip(rows, found, strict=True):
            row[: len(units_of)] = units_of
        return rows

    def expect(self, first_step: int, epoch: EpochItems) -> None:
        """See Items."""
        self._steps.expect(first_step, epoch)

    def filling(self, arrays: list[Volume]) -> BatchFilling:
        """See Items."""
        return _Pasted(arrays, self._units, self._targets, self._steps)


class _Item:
    """One item of a slot."""

    def __init__(self, plan: ItemPlan, volumes: list[Volume], drawn: tuple[int, int, int]) -> None:
        self.plan, self.volumes, self.drawn = plan, volumes, drawn
        self.missing = set(plan.units)
        self.targets: torch.Tensor | None = None
        self.error: BaseException | None = None
        inverse = plan.placement.orientation.inverse()
        self._stored = [inverse.view(volume) for volume in volumes]
        if plan.is_padded:
            for volume in volumes:
                volume[...] = 0

    @property
    def is_upright(self) -> bool:
        """Whether voxels lie as they are stored."""
        return self.plan.placement.orientation == _UPRIGHT

    def place(self, field: int, channels: slice, target: Box) -> Volume:
        """Return a part of a field as it is stored."""
        return self._stored[field][(channels, *target.slices)]


class _Pasted:
    """A slot whose items are pasted; see BatchFilling."""

    def __init__(self, arrays: list[Volume], units: PieceUnits, targets: KnownTargets, steps: ExpectedSteps) -> None:
        self.arrivals: dict[int, Arrival] = {}
        self._arrays, self._units, self._targets, self._steps = arrays, units, targets, steps
        self._lock = threading.RLock()
        self._drawn: tuple[tuple[int, int, int], ...] | None = None
        self._items: list[_Item] | None = None
        self._brought: dict[int, list[Volume]] = {}
        self._direct: dict[int, tuple[int, Share]] = {}
        self._pasted: set[int] = set()
        self._used = 0

    def begin(self, step: int) -> None:
        """See Filling."""
        if self._drawn is None:
            self._drawn = self._steps.of(step)

    def again(self) -> Filling:
        """See Filling."""
        return _Pasted(self._arrays, self._units, self._targets, self._steps)

    def at(self, part: Part) -> Sequence[Volume]:
        """See Filling."""
        with self._lock:
            items = self._made()
            found = self._brought.get(part.sample)
            if found is None:
                found = self._in_place(part.sample, items)
                if found is None:
                    found = [self._cut(one.shape, one.dtype) for one in self._units.unit(part.sample).layout]
                self._brought[part.sample] = found
        return found

    def whole(self, part: Part) -> Sequence[Volume] | None:
        """See Filling."""
        return None if part.sample in self._pasted else self._brought.get(part.sample)

    def take_from(self, part: Part, tier: Tier, keys: Sequence[BlockKey]) -> bool:
        """See Filling; what goes to its place in an item as a whole is copied there as any block."""
        number = part.sample
        if part.is_stored:
            return False
        with self._lock:
            items = self._made()
            if number in self._brought or part.place in self.arrivals or self._in_place(number, items) is not None:
                return False
        if not isinstance(tier, MemoryTier):
            return False
        with ExitStack() as stack:
            layout = self._units.unit(number).layout
            views = [
                stack.enter_context(tier.lent(key, one.dtype, one.shape)) for key, one in zip(keys, layout, strict=True)
            ]
            arrays = [view for view in views if view is not None]
            if len(arrays) < len(views):
                return False
            self._paste_all(number, items, arrays)
        self._pasted.add(number)
        return True

    def read_wanted(self, part: Part) -> ReadCost | None:
        """See Filling: a chunk that an item does not touch may be missing without harm to it, as without a cache."""
        number, total = part.sample, ReadCost()
        with self._lock:
            items = self._made()
        shares = [(item, share) for item in items for share in item.plan.shares.get(number, ())]
        for item, share in shares:
            arrays, cost = self._units.read_part(number, share.source)
            total += cost
            for target, array in zip(self._places(item, share), arrays, strict=True):
                copy_turned(target, array)
        self._pasted.add(number)
        return total

    def arrived(self, part: Part, arrival: Arrival) -> None:
        """See Filling."""
        number = part.sample
        with self._lock:
            if part.place in self.arrivals:
                return
            items = self._made()
            error = next((item.error for item in items if item.error is not None), None)
        if error is not None:
            raise error
        if number not in self._pasted:
            self._paste_all(number, items, self._brought[number])
        for item in items:
            if number not in item.missing:
                continue
            with self._lock:
                item.missing.discard(number)
                is_last = not item.missing
            if is_last:
                try:
                    self._finish(item)
                except BaseException as failure:  # half finished it may be: it is not begun again
                    item.error = failure
                    raise
        self.arrivals[part.place] = arrival

    def batch(self, indices: tuple[int, ...]) -> Batch:
        """See BatchFilling."""
        items = self._made()
        cost = sum((arrival.cost for arrival in self.arrivals.values()), ReadCost())
        reads = []
        for item in items:
            index, number, repeat = item.drawn
            volumes = None if self._is_even else item.volumes
            layout, cost = item.plan.layout, cost + item.plan.cost
            read = SampleRead(
                index, number, repeat, layout, volumes, is_apart=not self._is_even, cost=cost, targets=item.targets
            )
            reads.append(read)
            cost = ReadCost()
        return made(indices, self._units.data, self._arrays[:-1], reads)

    @property
    def _is_even(self) -> bool:
        return len(self._arrays) > 1

    def _made(self) -> list[_Item]:
        """Return the step's items, made by who asks first."""
        with self._lock:
            if self._items is None:
                self._items = [self._item(place, drawn) for place, drawn in enumerate(self._drawn or ())]
            return self._items

    def _item(self, place: int, drawn: tuple[int, int, int]) -> _Item:
        plan = self._units.plan(*drawn)
        if self._is_even:
            volumes = [array[place] for array in self._arrays[:-1]]
        else:
            volumes = [self._cut(one.shape, one.dtype) for one in plan.layout]
        return _Item(plan, volumes, drawn)

    def _cut(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Volume:
        """Return an array in the slot's bytes behind its items."""
        nbytes = int(np.prod(shape)) * dtype.itemsize
        begin, beside = self._used, self._arrays[-1]
        self._used += -(-nbytes // ALIGNMENT) * ALIGNMENT
        if begin + nbytes > len(beside):
            found = f"{begin + nbytes} bytes of {len(beside)}"
            raise InternalError("units of a step", found=found, expected="as many as were foreseen")
        return beside[begin : begin + nbytes].view(dtype).reshape(shape)

    def _in_place(self, number: int, items: list[_Item]) -> list[Volume] | None:
        """Return the part of an item that is all of a unit, by rule 1; None where there is none."""
        unit = self._units.unit(number)
        for place, item in enumerate(items):
            for share in item.plan.shares.get(number, ()):
                if item.is_upright and share.source.shape == unit.box.shape:
                    self._direct[number] = place, share
                    return self._places(item, share)
        return None

    def _places(self, item: _Item, share: Share) -> list[Volume]:
        """Return the part of an item that a unit's arrays go to."""
        found = []
        for field in self._units.fields_of(share.unit):
            count = self._units.channels_of_step(field)
            first = share.step * count if self._units.has_steps[field] else 0
            found.append(item.place(field, slice(first, first + count), share.target))
        return found

    def _paste_all(self, number: int, items: list[_Item], arrays: list[Volume]) -> None:
        """Paste a unit into all items that want it, but for the part that was brought to its place."""
        for place, item in enumerate(items):
            for share in item.plan.shares.get(number, ()):
                if self._direct.get(number) != (place, share):
                    self._paste(item, share, arrays)

    def _paste(self, item: _Item, share: Share, arrays: list[Volume]) -> None:
        for target, array in zip(self._places(item, share), arrays, strict=True):
            copy_turned(target, array[(slice(None), *share.source.slices)])

    def _finish(self, item: _Item) -> None:
        """Do what is done to an item once all of it is there."""
        data, (index, _, _) = self._units.data, item.drawn
        if not item.is_upright:
            locations = data.locations(index)
            for field, volume in enumerate(item.volumes):
                count = self._units.channels_of_step(field)
                data.cutter.turn_vectors(field, volume, item.plan.placement, location=locations[field], count=count)
        item.targets = self._targets.of(index)
