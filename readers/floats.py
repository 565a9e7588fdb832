"""Floats: conversions between bits and numbers that numba lacks, for kernels that cast.

Rounding is to the nearest, ties to even, as numpy's and torch's casts do; values out of range become infinite.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import float32, float64, types, uint16, uint32
from numba.extending import intrinsic

from voxload.readers.compiling import part

_SIGN, _MAGNITUDE = 0x80000000, 0x7FFFFFFF
_INFINITE = 0x7F800000
_HALF_INFINITE = 0x7C00
_HALF_BEYOND = 0x47800000
"""Bits of 2**16 as a float32: from here on halves are infinite; what lies between 65,504 and it rounds by itself."""
_HALF_NORMAL = 0x38800000
"""Bits of 2**-14: below it halves are subnormal."""
_HALF_BIAS = 0x38000000
"""Difference of the exponents' biases, 127 - 15, at a float32's exponent."""
_ALIGN = 0x3F000000
"""Bits of 0.5: added to a number below 2**-14, it leaves the bits of the subnormal half in the lowest places."""
_SCALE = 0x38800000


def _make_bits(_context: Any, value: Any) -> Any:  # noqa: ARG001 - numba counts them
    """Return the bits of a float32."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate


def _make_value(_context: Any, bits: Any) -> Any:  # noqa: ARG001 - numba counts them
    """Return the float32 of these bits."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate


bits_of: Any = intrinsic(_make_bits)
value_of: Any = intrinsic(_make_value)


@part
def half_of(value: Any) -> Any:
    """Return the bits of a float32 as IEEE 754 binary16."""
    bits = bits_of(value)
    sign, size = (bits & uint32(_SIGN)) >> uint32(16), bits & uint32(_MAGNITUDE)
    odd = (size >> uint32(13)) & uint32(1)
    # All cases are computed and one is taken, so that the loop around this needs no branches.
    normal = (size - uint32(_HALF_BIAS) + uint32(0xFFF) + odd) >> uint32(13)
    small = bits_of(value_of(size) + value_of(uint32(_ALIGN))) - uint32(_ALIGN)
    # A number that is none stays none: its highest bit is set, whatever else is lost.
    none = uint32(0x7E00) | ((size >> uint32(13)) & uint32(0x3FF))
    beyond = uint32(_HALF_INFINITE) if size <= uint32(_INFINITE) else none
    found = small if size < uint32(_HALF_NORMAL) else normal
    return uint16(sign | (beyond if size >= uint32(_HALF_BEYOND) else found))


@part
def of_half(bits: Any) -> Any:
    """Return the float32 of the bits of an IEEE 754 binary16."""
    wide = uint32(bits)
    sign, size = (wide & uint32(0x8000)) << uint32(16), (wide & uint32(0x7FFF)) << uint32(13)
    if wide & uint32(_HALF_INFINITE) == uint32(_HALF_INFINITE):
        return value_of(sign | (size + uint32(2 * _HALF_BIAS)))
    if wide & uint32(_HALF_INFINITE) == uint32(0):
        return value_of(sign | bits_of(value_of(size + uint32(_SCALE)) - value_of(uint32(_SCALE))))
    return value_of(sign | (size + uint32(_HALF_BIAS)))


@part
def bfloat_of(value: Any) -> Any:
    """Return the bits of a float32 as bfloat16."""
    bits = bits_of(value)
    if bits & uint32(_MAGNITUDE) > uint32(_INFINITE):
        return uint16((bits >> uint32(16)) | uint32(0x40))
    return uint16((bits + uint32(0x7FFF) + ((bits >> uint32(16)) & uint32(1))) >> uint32(16))


@part
def odd_of(value: Any) -> Any:
    """Return a float64 as a float32 rounded to odd, which rounds on to fewer bits as the number itself would.

    Source: Boldo and Melquiond, Emulation of FMA and correctly rounded sums, IEEE TC 57(4), 2008.
    """
    near = float32(value)
    bits = bits_of(near)
    is_exact = float64(near) == value or not abs(value) < float64(3e38)
    toward = bits - uint32(1) if abs(float64(near)) > abs(value) else bits
    return near if is_exact else value_of(toward | uint32(1))
