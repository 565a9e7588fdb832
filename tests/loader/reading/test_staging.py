"""StagingRing: slots come back when nobody looks into them any more, and never before."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import voxload
from voxload.data.layout import FieldLayout
from voxload.errors import UsageError
from voxload.loader.reading.staging import BatchLayout, StagingRing

LAYOUT = BatchLayout(2, (FieldLayout((3, 4, 4, 4), np.dtype("i2")), FieldLayout((1, 4, 4, 4), np.dtype("f8"))))


def test_fields_do_not_overlap() -> None:
    """The arrays of a slot have the asked shapes and types, start at cache lines and share no byte."""
    slot = StagingRing(LAYOUT, budget=2**20, most=2).acquire()
    assert slot is not None
    first, second = slot.arrays()
    assert (first.shape, first.dtype) == ((2, 3, 4, 4, 4), np.dtype("i2"))
    assert (second.shape, second.dtype) == ((2, 1, 4, 4, 4), np.dtype("f8"))
    assert not np.shares_memory(first, second)
    assert first.ctypes.data % 64 == 0
    assert second.ctypes.data - first.ctypes.data == 768  # 2 * 3 * 4^3 * 2 bytes, a multiple of 64
    first[...], second[...] = 1, 2
    assert first.sum() == 2 * 3 * 4**3
    assert second.sum() == 2 * 2 * 4**3


HOLDERS: dict[str, Callable[[npt.NDArray[Any]], object]] = {
    "array": lambda array: array,
    "view": lambda array: array[0, 1:, ::2],
    "tensor": torch.from_numpy,
    "tensor view": lambda array: torch.from_numpy(array[:1])[0, 1].reshape(-1)[3:],
    "storage": lambda array: torch.from_numpy(array).untyped_storage(),
}


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_slot_comes_back_with_its_last_holder(holder: str) -> None:
    """Whatever looks into a slot keeps it; it is free again at the moment the last such thing is gone."""
    ring = StagingRing(LAYOUT, budget=2**20, most=2)
    slots = [ring.acquire(), ring.acquire()]
    assert ring.acquire() is None
    assert slots[0] is not None
    held = [HOLDERS[holder](slots[0].arrays()[0])]
    gc.collect()
    assert ring.acquire() is None
    held.clear()
    gc.collect()
    assert ring.acquire() is slots[0]
    assert ring.acquire() is None


def test_the_budget_bounds_the_slots() -> None:
    """As many slots as fit the budget, at most as many as asked; fewer than two are refused."""
    assert LAYOUT.nbytes == 768 + 1024
    assert StagingRing(LAYOUT, budget=5 * LAYOUT.nbytes, most=100).slots == 5
    assert StagingRing(LAYOUT, budget=5 * LAYOUT.nbytes, most=3).slots == 3
    with pytest.raises(UsageError, match=r"expected 3\.5 KiB or more for two batches of 2 blocks"):
        StagingRing(LAYOUT, budget=2 * LAYOUT.nbytes - 1, most=100)


def test_replaced_slots_leave_the_ring() -> None:
    """A slot that stands in for a kept one does not make the ring larger once both are back."""
    ring = StagingRing(LAYOUT, budget=2**20, most=2)
    lent = [slot.arrays() for slot in (ring.acquire(), ring.acquire(), ring.replace()) if slot is not None]
    assert len(lent) == 3
    lent.clear()
    gc.collect()
    back = [ring.acquire(), ring.acquire()]
    assert all(slot is not None for slot in back)
    assert ring.acquire() is None


def test_the_memory_goes_with_the_ring() -> None:
    """At once, with slots that are free and slots that came back; of one that is lent, with its last holder."""
    ring = StagingRing(LAYOUT, budget=2**20, most=3)
    slots = [slot for slot in (ring.acquire(), ring.acquire(), ring.acquire()) if slot is not None]
    memories = [weakref.ref(slot._memory) for slot in slots]
    ring.give_back(slots[:1])
    held = [slot.arrays() for slot in slots[1:]]
    gc.disable()
    try:
        del held[0]
        slots.clear()
        del ring
        assert [memory() is None for memory in memories] == [True, True, False]
        held.clear()
        assert memories[2]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("options", [{}, {"cache": voxload.Cache(memory="1MiB")}], ids=["plain", "cached"])
def test_no_python_runs_where_a_batch_ends(tmp_path: Path, options: dict[str, Any]) -> None:
    """An interrupt that is raised in what a weak reference calls is dropped: a loop that drops batches loses none."""
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", np.full((1, 4, 4, 4), number, "i2"))
    data = voxload.VolumeDataset(f"{tmp_path}/*.npy", axes="CDHW")
    called: list[str] = []
    loader = voxload.DataLoader(data, batch_size=1, num_workers=1, **options)
    for batch in loader:
        held = list(batch)
        batch.clear()
        sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_qualname) if event == "call" else None)
        held.clear()
        sys.setprofile(None)
    loader.close()
    data.close()
    assert called == []
