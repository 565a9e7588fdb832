"""Pinning: memory is page-aligned, locked once, and unlocked before it ends.

The lock used here is the kernel's own, mlock(2): it really locks pages, and refuses to unlock what is not mapped any
more. CUDA's lock runs through the same code.
"""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from voxload.data.layout import FieldLayout
from voxload.errors import StorageError, UsageError
from voxload.loader.reading.pinning import PAGE, host_memory, locked_bytes, page_lock
from voxload.loader.reading.staging import BatchLayout, StagingRing

_LIBC = ctypes.CDLL(None, use_errno=True)
LAYOUT = BatchLayout(1, (FieldLayout((1, 8, 8, 8), np.dtype("i2")),))


class KernelLock:
    """Locks pages with mlock(2)."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}

    def lock(self, address: int, nbytes: int) -> None:
        """See PageLock."""
        self._call(_LIBC.mlock, address, nbytes)
        self.held[address] = nbytes

    def unlock(self, address: int) -> None:
        """See PageLock."""
        self._call(_LIBC.munlock, address, self.held.pop(address))

    @staticmethod
    def _call(function: ctypes._NamedFuncPointer, address: int, nbytes: int) -> None:
        if function(ctypes.c_void_p(address), ctypes.c_size_t(nbytes)):
            raise StorageError("page-locking", found=os.strerror(ctypes.get_errno()))


def _locked() -> int:
    """Return the bytes that this process has locked."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmLck"))


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("nbytes", [0, 1, PAGE, 5 * PAGE + 3, 2**20])
def test_memory_is_locked_for_as_long_as_it_lasts(nbytes: int) -> None:
    """Whole pages of its own are locked until the last view of the memory is gone, and then unlocked."""
    lock, before = KernelLock(), _locked()
    memory = host_memory(nbytes, lock)
    assert memory.nbytes == max(nbytes, 1)
    assert memory.ctypes.data % PAGE == 0
    assert lock.held == {memory.ctypes.data: locked_bytes(max(nbytes, 1), lock)}
    assert _locked() - before == locked_bytes(max(nbytes, 1), lock)
    view = torch.from_numpy(memory)[:1]
    del memory
    gc.collect()
    assert _locked() > before
    del view
    gc.collect()
    assert not lock.held
    assert _locked() == before


def test_without_a_lock_nothing_is_locked() -> None:
    """Pageable memory is aligned alike, and takes the bytes that were asked for."""
    before = _locked()
    assert host_memory(100).ctypes.data % PAGE == 0
    assert _locked() == before
    assert locked_bytes(100, None) == 100
    assert page_lock(None) is None
    assert page_lock(torch.device("cpu")) is None


@pytest.mark.long
def test_a_ring_locks_its_slots_once_and_within_the_budget() -> None:
    """Slots are locked when the ring is made, a replaced one too, and unlocked with the ring; budgets count pages."""
    lock, before = KernelLock(), _locked()
    ring = StagingRing(LAYOUT, budget=4 * PAGE, most=3, lock=lock)
    addresses = set(lock.held)
    assert (ring.slots, len(addresses), _locked() - before) == (3, 3, 3 * PAGE)
    lent = [slot.arrays() for slot in iter(ring.acquire, None)]
    lent.append(ring.replace().arrays())
    assert len(lock.held) == 4
    lent.clear()
    gc.collect()
    lent += [slot.arrays() for slot in iter(ring.acquire, None)]
    assert {arrays[0].ctypes.data for arrays in lent} <= set(lock.held)
    assert len(lock.held) == 3  # the surplus one is gone
    del ring
    gc.collect()
    assert len(lock.held) == 3  # they are still lent
    lent.clear()
    gc.collect()
    assert _locked() == before
    with pytest.raises(UsageError, match="expected 8 KiB or more for two batches"):
        StagingRing(LAYOUT, budget=2 * PAGE - 1, most=3, lock=lock)


def test_what_cannot_be_locked_is_an_error() -> None:
    """A refusal surfaces, and slots that were locked before it are unlocked."""

    class Limited(KernelLock):
        def lock(self, address: int, nbytes: int) -> None:
            """Lock one range only."""
            if self.held:
                raise StorageError("page-locking", found="no more")
            super().lock(address, nbytes)

    lock, before = Limited(), _locked()
    with pytest.raises(StorageError, match="no more"):
        StagingRing(LAYOUT, budget=2**20, most=2, lock=lock)
    gc.collect()
    assert not lock.held
    assert _locked() == before
