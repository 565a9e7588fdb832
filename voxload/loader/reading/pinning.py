"""Pinning: host memory of our own that a device copies from by itself.

Rules of this file:

1. Memory is page-aligned, and no page of it is shared with anything else: what is locked is ours alone.
2. It is locked once, when it is made, and unlocked right before it is given back to the allocator.
3. Whoever starts an asynchronous copy out of it keeps an array of it until the copy has ended.
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from voxload.errors import StorageError
from voxload.units import format_bytes

PAGE = mmap.PAGESIZE
"""Memory is locked by pages."""
_PORTABLE = 1
"""cudaHostRegisterPortable: pinned for every context of the process, as a second device has one of its own."""


class PageLock(Protocol):
    """Locks ranges of host memory; may be used from many threads at once."""

    def lock(self, address: int, nbytes: int) -> None:
        """Lock whole pages; raises StorageError where that is refused."""
        ...

    def unlock(self, address: int) -> None:
        """Unlock what was locked at an address; raises StorageError where that is refused."""
        ...


class CudaPageLock:
    """Registers memory with CUDA, as ``cudaHostRegister`` of the CUDA Runtime API describes it.

    torch's pinned allocator rounds every size up to a power of two; this takes the pages that are asked for.

    Parameters
    ----------
    device
        The CUDA device, with its number.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._process = os.getpid()

    def lock(self, address: int, nbytes: int) -> None:
        """See PageLock."""
        with torch.cuda.device(self._device):
            code = int(torch.cuda.cudart().cudaHostRegister(address, nbytes, _PORTABLE))  # type: ignore[no-untyped-call] # torch's
        self._check(code, f"page-locking {format_bytes(nbytes)} of host memory for {self._device}")

    def unlock(self, address: int) -> None:
        """See PageLock; does nothing in a forked process, which inherits no locks and cannot use CUDA."""
        if os.getpid() != self._process:
            return
        with torch.cuda.device(self._device):
            code = int(torch.cuda.cudart().cudaHostUnregister(address))  # type: ignore[no-untyped-call] # torch's
        self._check(code, f"unlocking host memory of {self._device}")

    def _check(self, code: int, what: str) -> None:
        if code:
            raise StorageError(
                what,
                found=str(torch.cuda.CudaError(code)),
                remedy="raise the limit of locked memory (ulimit -l), or lower staging",
            )


def page_lock(device: torch.device | None) -> PageLock | None:
    """Return what pins host memory for a device; None where nothing needs to be pinned."""
    return CudaPageLock(device) if device is not None and device.type == "cuda" else None


def locked_bytes(nbytes: int, lock: PageLock | None) -> int:
    """Return the bytes that memory takes: whole pages where it is locked."""
    return nbytes if lock is None else -(-nbytes // PAGE) * PAGE


def host_memory(nbytes: int, lock: PageLock | None = None) -> npt.NDArray[np.uint8]:
    """Return page-aligned bytes, locked until the last array that looks into them is gone.

    Raises
    ------
    StorageError
        When the memory cannot be locked.
    """
    size = -(-max(nbytes, 1) // PAGE) * PAGE
    whole = np.empty(size + PAGE, np.uint8)
    first = -whole.ctypes.data % PAGE
    # Pages that are not locked come into being where they are first written: by all threads of a read at once.
    if lock is not None:
        address = whole.ctypes.data + first
        lock.lock(address, size)
        # numpy clears an array's weak references before it frees its bytes. A process that ends unlocks everything.
        weakref.finalize(whole, lock.unlock, address).atexit = False
    return whole[first : first + max(nbytes, 1)]
