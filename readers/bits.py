"""Bits: numbers of so many bits in a row, the highest bit first, as HDF5's packing filters store them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import boolean, types, uint8, uint16, uint32, uint64

from voxload.readers.compiling import compiled
from voxload.readers.kernels import BYTES
from voxload.readers.scratch import Bytes

_BYTE = 8
_ZERO, _ONE = uint64(0), uint64(1)
Numbers = npt.NDArray[Any]
"""One-dimensional, of unsigned integers."""


def packed_bytes(count: int, bits: int) -> int:
    """Return how long HDF5 makes `count` numbers of `bits` bits: one byte more than whole ones; pure.

    >>> packed_bytes(64, 5), packed_bytes(3, 5)
    (41, 2)
    """
    return count * bits // _BYTE + 1


def unpack(stream: Bytes, bits: int, out: Numbers, *, add: int = 0, last: int | None = None) -> None:
    """Fill `out` with numbers of `bits` bits each plus `add`, by the arithmetic of its type.

    Parameters
    ----------
    stream
        The bits.
    bits
        1 to those of the type.
    out
        Where the numbers go.
    add
        What is added to each, as an unsigned number of 64 bits.
    last
        What stands for the largest number of so many bits, likewise; None where it stands for itself.

    Raises
    ------
    ValueError
        When the stream is longer or shorter than HDF5 makes it.
    """
    expected = packed_bytes(len(out), bits)
    if len(stream) != expected:
        raise ValueError(f"{len(stream)} bytes of packed bits instead of {expected}")
    _KERNELS[out.dtype.itemsize](stream, np.uint64(bits), np.uint64(add), last is not None, np.uint64(last or 0), out)


def _unpack(stream: Any, bits: Any, add: Any, has_last: Any, last: Any, out: Any) -> None:
    """Take the bits byte by byte; the caller has checked that there are enough."""
    at, left, byte = _ZERO, _ZERO, _ZERO
    largest = (_ONE << bits) - _ONE
    for index in range(len(out)):
        value, rest = _ZERO, bits
        while rest > _ZERO:
            if left == _ZERO:
                byte, left, at = uint64(stream[at]), uint64(_BYTE), at + _ONE
            take = min(left, rest)
            left -= take
            rest -= take
            value = (value << take) | ((byte >> left) & ((_ONE << take) - _ONE))
        out[index] = last if has_last and value == largest else value + add


_KERNELS: dict[int, Any] = {
    width: compiled(BYTES, uint64, uint64, boolean, uint64, types.Array(number, 1, "C"))(_unpack)
    for width, number in ((1, uint8), (2, uint16), (4, uint32), (8, uint64))
}
"""Bytes of an element to its kernel."""
