"""Spin: a kernel that keeps a core busy until a given moment, without the interpreter lock."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import int64, types, uint64

from voxload.readers.compiling import compiled

_clock_gettime: Any = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uint64))
_MONOTONIC = time.CLOCK_MONOTONIC
"""The clock of time.perf_counter on Linux."""
_MIX = np.uint64(6364136223846793005)
_BETWEEN = 64
"""Multiplications between looks at the clock: about as long as a look, so that half of the work is computing."""


@compiled(int64, types.Array(int64, 1, "C"), uint64, returns=uint64)
def _spin(stop: int, now: Any, address: Any) -> Any:
    """Multiply until the clock shows `stop` nanoseconds; `now` is where the clock writes, and `address` its address."""
    value = uint64(1)
    while now[0] * 1_000_000_000 + now[1] < stop:
        for _ in range(_BETWEEN):
            value = value * _MIX + uint64(1)
        _clock_gettime(_MONOTONIC, address)
    return value


def spin_until(stop: float) -> None:
    """Keep this thread's core busy until time.perf_counter() shows `stop`; other threads of Python run meanwhile.

    Safe to call from many threads at once.
    """
    now: npt.NDArray[np.int64] = np.zeros(2, np.int64)
    _spin(int(stop * 1e9), now, now.ctypes.data)
