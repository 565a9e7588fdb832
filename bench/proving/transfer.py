"""Transfer: how fast the loader's path brings batches to a device, beside plain copies out of pinned memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from bench.proving.clock import seconds
from bench.proving.told import Setting, Teller
from voxload.data.layout import FieldLayout
from voxload.loader.batch import Batch, Foreseen
from voxload.loader.device.batches import DeviceBatches
from voxload.loader.device.copiers import copier_to, with_index
from voxload.loader.device.ring import DeviceRing
from voxload.loader.reading.pinning import page_lock
from voxload.loader.reading.staging import BatchLayout, StagingRing
from voxload.readers.protocol import ReadCost, Volume

_BATCHES = 16
_ROUNDS = 9
_TIMES = 3
"""Measurements: each is the best of rounds in turn."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes a second to the device."""

    loader: float
    """Through slots, ring and events."""
    plain: float
    """By ``copy_`` out of one pinned tensor, as many times."""

    @property
    def share(self) -> float:
        """How much of the plain copy's bandwidth the loader reaches."""
        return self.loader / self.plain


def prove_transfer(setting: Setting, tell: Teller) -> None:
    """Measure a few times."""
    found = [measure(torch.device(setting.device), 16 if setting.is_small else 256) for _ in range(_TIMES)]
    tell.figures("copies: bandwidth over a plain pinned copy", *(one.share for one in found))
    tell.figures("copies: GB/s of the plain copy", *(one.plain / 1e9 for one in found))
    tell.detail("transfer", [asdict(one) for one in found])


class Slots:
    """Batches that are there already: the same few slots again and again."""

    def __init__(self, held: Sequence[Sequence[Volume]], count: int) -> None:
        self._held = held
        self._count = count
        self.taken = 0
        self.seconds_on_device = 0.0

    def ready(self) -> bool:
        """See Batches."""
        return True

    def foreseen(self) -> Foreseen | None:
        """See Batches."""
        return Foreseen((0,) if self.taken < self._count else None)

    def next(self) -> Batch | None:
        """See Batches."""
        if self.taken == self._count:
            return None
        arrays = self._held[self.taken % len(self._held)]
        self.taken += 1
        return Batch((0,), tuple(map(torch.from_numpy, arrays)), None, ReadCost())


def measure(device: torch.device, size: int) -> Transfer:
    """Return the best of several rounds, which others on the machine disturbed least; both ways in turn."""
    device = with_index(device)
    layout = BatchLayout(1, (FieldLayout((4, size, size, size), np.dtype(np.int16)),))
    slots = StagingRing(layout, budget=3 * (layout.nbytes + 2**16), most=3, lock=page_lock(device))
    ring = DeviceRing(copier_to(device), layout, keep=1, budget=2 * layout.nbytes)
    held = [slot.arrays() for slot in iter(slots.acquire, None)]  # written once: to write takes longer than to copy
    for number, arrays in enumerate(held):
        for array in arrays:
            array[...] = number
    source = torch.zeros(layout.nbytes, dtype=torch.uint8, pin_memory=device.type == "cuda").fill_(1)
    target = torch.zeros(layout.nbytes, dtype=torch.uint8, device=device).fill_(1)

    def through() -> None:
        batches = DeviceBatches(Slots(held, _BATCHES), ring)
        while batches.next() is not None:
            pass

    rounds = []
    for _ in range(_ROUNDS):
        plain = seconds(device, lambda: target.copy_(source, non_blocking=True), _BATCHES)
        rounds.append((plain, seconds(device, through) / _BATCHES))
    plain, loader = (min(column) for column in zip(*rounds[1:], strict=True))  # the first one warms up
    return Transfer(layout.nbytes / loader, layout.nbytes / plain)
