"""Bit packing: HDF5's filters that store so many bits of each number in a row, N-bit (5) or scale-offset (6).

N-bit: HDF5's filter 5, which stores those bits of an element that its type uses. Source: HDF5 2.0, H5Znbit.c.
Parameters: how many there are, whether nothing is done, elements of a chunk, then class, size, byte order, precision
and offset of an element. A chunk: the used bits of all elements in a row.

Scale-offset: HDF5's filter 6, which stores the difference from the least value of a chunk in few bits. Source: HDF5
2.0, H5Zscaleoffset.c. Parameters: kind of scale, factor, elements of a chunk, class, size, sign and byte order of an
element, whether there is a fill value, and that in words of four bytes. A chunk: bits of a difference in four bytes,
the bytes of the least value in one, that value in eight, eight of padding, then the differences. The largest
difference stands for the fill value.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.core.library import function
from voxload.readers.scratch import Bytes, scratch

_BYTE = 8
_unpack = function("unpack_numbers", "rnnbnwnn")
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
    if not 0 < bits <= _BYTE * out.itemsize:
        raise ValueError(f"numbers of {bits} bits in elements of {out.itemsize} bytes")
    _unpack(stream, bits, add, last is not None, last or 0, out, out.itemsize, len(out))


_NBIT_PARAMETERS = 8
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
        if len(values) != _NBIT_PARAMETERS or values[3] != _ATOMIC or itemsize > _MOST_BYTES:
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


_SCALE_PARAMETERS = 20
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
        if len(values) != _SCALE_PARAMETERS or dtype.itemsize not in _SIZES.get(dtype.kind, ()):
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
