"""Scale-offset: HDF5's filter 6, which stores the difference from the least value of a chunk in few bits.

Source: HDF5 2.0, H5Zscaleoffset.c. Parameters: kind of scale, factor, elements of a chunk, class, size, sign and byte
order of an element, whether there is a fill value, and that in words of four bytes. A chunk: bits of a difference in
four bytes, the bytes of the least value in one, that value in eight, eight of padding, then the differences. The
largest difference stands for the fill value.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voxload.readers.bits import unpack
from voxload.readers.scratch import Bytes, scratch

_PARAMETERS = 20
_FILL = 8
_DECIMAL, _INTEGER = 0, 2
_HEADER = struct.Struct("<IBQ8x")
_LEAST_BYTES = 8
_SIZES = {"i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (4, 8)}
_MOST_DIGITS = {4: 37, 8: 307}
"""Decimal digits by which a floating type of so many bytes can be scaled without an overflow."""


@dataclass(frozen=True, slots=True)
class ScaleOffset:
    """HDF5's filter 6."""

    kind: str
    """Class and sign of an element: "i", "u" or "f"."""
    itemsize: int
    """Bytes of an element."""
    is_big: bool
    """Whether the elements' bytes are stored the highest first."""
    scale: float
    """What floating differences were multiplied by; 1 for integers."""
    fill: int | None
    """Bits of the fill value; None where there is none."""
    is_idle: bool = False
    """Whether all bits are kept, and nothing was done."""
    grows: int | None = None

    @classmethod
    def parse(cls, values: tuple[int, ...], dtype: np.dtype[np.generic]) -> ScaleOffset | None:
        """Return the filter of these parameters; None when they are not ones for elements of the stored `dtype`."""
        if len(values) != _PARAMETERS or dtype.itemsize not in _SIZES.get(dtype.kind, ()):
            return None
        manner, factor, _, of_class, size, sign, order, has_fill = values[:_FILL]
        factor -= 2**32 if factor >= 2**31 else 0
        is_float, is_big = dtype.kind == "f", dtype.newbyteorder("<") != dtype
        if (manner, of_class) != ((_DECIMAL, 1) if is_float else (_INTEGER, 0)) or size != dtype.itemsize:
            return None
        if (size > 1 and order != is_big) or (not is_float and sign != (dtype.kind == "i")) or has_fill not in (0, 1):
            return None
        if (abs(factor) > _MOST_DIGITS[size]) if is_float else (factor > 8 * size):
            return None
        fill = (values[_FILL] | values[_FILL + 1] << 32) % 2 ** (8 * size) if has_fill else None
        scale = math.pow(10, factor) if is_float else 1.0
        return cls(dtype.kind, size, is_big, scale, fill, is_idle=not is_float and factor == 8 * size)

    def undo(self, data: Bytes, size: int) -> Bytes:
        """Return the bytes of the elements, in this thread's scratch."""
        if self.is_idle:
            return data
        if len(data) < _HEADER.size or size < 0 or size % self.itemsize:
            raise ValueError(f"{len(data)} bytes of scale-offset for {size}")
        bits, width, least = _HEADER.unpack_from(data.data)
        if width != _LEAST_BYTES or bits > 8 * self.itemsize:
            raise ValueError(f"scale-offset header of {bits} bits and a least value of {width} bytes")
        body = data[_HEADER.size :]
        if bits == 8 * self.itemsize:
            if len(body) != size:
                raise ValueError(f"{len(body)} bytes of scale-offset instead of {size}")
            np.copyto(scratch.decoded(size), body)  # in the machine's order, from which they are turned
        numbers = scratch.decoded(size).view(f"<u{self.itemsize}")
        if bits == 8 * self.itemsize:
            pass
        elif self.kind != "f":
            self._fill_integers(body, bits, least, numbers)
        else:
            self._fill_floats(body, bits, least, numbers)
        return self._turned(numbers)

    def _fill_integers(self, body: Bytes, bits: int, least: int, out: npt.NDArray[np.unsignedinteger]) -> None:
        if bits:
            unpack(body, bits, out, add=least, last=self.fill)
            return
        _check_nothing(body)
        out[...] = least % 2 ** (8 * self.itemsize) if self.fill is None else self.fill

    def _fill_floats(self, body: Bytes, bits: int, least: int, out: npt.NDArray[np.unsignedinteger]) -> None:
        if bits:
            unpack(body, bits, out)
        else:
            _check_nothing(body)
            out[...] = 0
        kind = np.dtype(f"<f{self.itemsize}").type
        fill, is_fill = self.fill, out == 2**bits - 1
        # As the library does it, in the arithmetic of the type: differences are signed integers there.
        values = out.view(f"<i{self.itemsize}").astype(kind)
        low = np.array(least % 2 ** (8 * self.itemsize), out.dtype).view(kind)
        with np.errstate(all="ignore"):
            np.divide(values, kind(self.scale), out=values)
            np.add(values, low, out=out.view(kind))
        if fill is not None:
            out[is_fill] = fill

    def _turned(self, numbers: npt.NDArray[np.unsignedinteger]) -> Bytes:
        """Return the bytes of numbers in the order of the dataset."""
        if self.is_big:
            numbers.byteswap(inplace=True)
        return numbers.view(np.uint8)


def _check_nothing(body: Bytes) -> None:
    """Refuse more or fewer bytes than HDF5 stores behind the header of a chunk of equal values: one."""
    if len(body) != 1:
        raise ValueError(f"{len(body)} bytes of scale-offset instead of 1")
