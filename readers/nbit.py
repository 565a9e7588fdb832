"""N-bit: HDF5's filter 5, which stores those bits of an element that its type uses.

Source: HDF5 2.0, H5Znbit.c. Parameters: how many there are, whether nothing is done, elements of a chunk, then class,
size, byte order, precision and offset of an element. A chunk: the used bits of all elements in a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from voxload.readers.bits import Numbers, unpack
from voxload.readers.scratch import Bytes, scratch

_PARAMETERS = 8
_ATOMIC = 1
_WIDTHS, _MOST_BYTES = (1, 2, 4, 8), 8


@dataclass(frozen=True, slots=True)
class NBit:
    """HDF5's filter 5, of elements that are numbers."""

    itemsize: int
    """Bytes of an element."""
    is_big: bool
    """Whether an element's highest byte is stored first."""
    precision: int
    """Bits of an element that are used; 0 where nothing was done."""
    offset: int
    """Place of the lowest of them."""
    grows: int | None = None

    @classmethod
    def parse(cls, values: tuple[int, ...], itemsize: int) -> NBit | None:
        """Return the filter of these parameters; None when they are not ones for numbers of `itemsize` bytes."""
        if len(values) > 1 and values[1]:
            return cls(itemsize, is_big=False, precision=0, offset=0)
        if len(values) != _PARAMETERS or values[3] != _ATOMIC or itemsize > _MOST_BYTES:
            return None
        _, _, _, _, size, order, precision, offset = values
        if size != itemsize or order not in (0, 1) or not 0 < precision <= precision + offset <= 8 * size:
            return None
        return cls(itemsize, bool(order), precision, offset)

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the bytes of the elements, whose unused bits are zero, in this thread's scratch."""
        if not self.precision:
            return data
        if size < 0 or size % self.itemsize:
            raise ValueError(f"{size} bytes for elements of {self.itemsize}")
        if self.itemsize in _WIDTHS:
            numbers = scratch.decoded(size).view(f"<u{self.itemsize}")
            self._fill(data, numbers)
            if self.is_big:
                numbers.byteswap(inplace=True)
            return numbers.view("u1")
        longest = np.empty(size // self.itemsize, "<u8")
        self._fill(data, longest)
        parts = longest.view("u1").reshape(-1, 8)[:, : self.itemsize]
        out = scratch.decoded(size)
        np.copyto(out.reshape(-1, self.itemsize), parts[:, ::-1] if self.is_big else parts)
        return out

    def _fill(self, data: Bytes, numbers: Numbers) -> None:
        unpack(data, self.precision, numbers)
        if self.offset:
            numbers <<= self.offset
