"""Intrinsics: what numba lacks for kernels that write to many arrays at once or cast, as plain machine operations.

Addresses: what numba lacks for kernels that write to many arrays at once, as plain machine operations. A read may
fill many arrays (the crops of a batch, the pieces of a periodic block), whose number is not known when a kernel is
compiled. So a kernel's plan holds the address of each row that is written, and these operations reach it. Nothing is
checked here: whoever makes a plan has checked every bound, and keeps the arrays alive.

Floats: conversions between bits and numbers that numba lacks, for kernels that cast. Rounding is to the nearest, ties
to even, as numpy's and torch's casts do; values out of range become infinite.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import float32, float64, types, uint16, uint32
from numba.extending import intrinsic

from voxload.readers.compiling import part

LINE = 64
"""Bytes of a cache line; where a processor has longer ones, streaming gains less and is no less correct."""
_BYTE = ir.IntType(8)
_WORDS = ir.VectorType(ir.IntType(64), LINE // 8)
PIECE = 32
"""Bytes that one instruction moves on most processors."""
_PIECE = ir.VectorType(ir.IntType(64), PIECE // 8)
_READ, _KEEP, _DATA = 0, 3, 1
"""Arguments of llvm.prefetch: for reading, into all caches, the data cache."""


def _make_copy(_context: Any, to: Any, at: Any, size: Any) -> Any:  # noqa: ARG001 - numba counts them
    """Copy `size` bytes between addresses, as C's memcpy."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> None:
        target, source = (builder.inttoptr(address, _BYTE.as_pointer()) for address in arguments[:2])
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [target.type, source.type, ir.IntType(64)])
        builder.call(memcpy, [target, source, arguments[2], ir.Constant(ir.IntType(1), 0)])

    return types.void(types.uint64, types.uint64, types.uint64), generate


def _make_copy_line(_context: Any, to: Any, at: Any) -> Any:  # noqa: ARG001 - numba counts them
    """Copy a line from any address to an aligned one, which is not read before."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> None:
        target, source = (builder.inttoptr(address, _WORDS.as_pointer()) for address in arguments)
        store = builder.store(builder.load(source, align=1), target, align=LINE)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))

    return types.void(types.uint64, types.uint64), generate


def _make_copy_piece(_context: Any, to: Any, at: Any) -> Any:  # noqa: ARG001 - numba counts them
    """Copy a piece between any addresses."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> None:
        target, source = (builder.inttoptr(address, _PIECE.as_pointer()) for address in arguments)
        builder.store(builder.load(source, align=1), target, align=1)

    return types.void(types.uint64, types.uint64), generate


def _woven(builder: Any, planes: list[Any], unit: int = 1) -> Any:
    """Return one vector of the elements whose bytes lie in `planes`, the lowest first; `unit` bytes stay together."""
    if len(planes) == 1:
        return planes[0]
    width = planes[0].type.count
    mask = [
        at + place * width for first in range(0, width, unit) for place in (0, 1) for at in range(first, first + unit)
    ]
    order = ir.Constant(ir.VectorType(ir.IntType(32), 2 * width), mask)
    pairs = zip(planes[::2], planes[1::2], strict=True)
    return _woven(builder, [builder.shuffle_vector(low, high, order) for low, high in pairs], 2 * unit)


def _store_line(builder: Any, line: Any, to: Any, streams: Any) -> None:
    """Store a line at any address, or past the caches at an aligned one."""
    words, target = builder.bitcast(line, _WORDS), builder.inttoptr(to, _WORDS.as_pointer())
    with builder.if_else(builder.trunc(streams, ir.IntType(1))) as (then, otherwise):
        with then:
            store = builder.store(words, target, align=LINE)
            store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        with otherwise:
            builder.store(words, target, align=1)


def _weaver(count: int) -> Any:
    """Return the maker of an operation that puts a line of elements of `count` bytes together out of its planes."""
    plane = ir.VectorType(_BYTE, LINE // count)

    def make(_context: Any, to: Any, at: Any, step: Any, streams: Any) -> Any:  # noqa: ARG001 - numba counts them
        """Weave a line to an address; planes lie `step` bytes apart."""

        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> None:
            to, at, step, streams = arguments
            planes = []
            for _ in range(count):
                planes.append(builder.load(builder.inttoptr(at, plane.as_pointer()), align=1))
                at = builder.add(at, step)
            _store_line(builder, _woven(builder, planes), to, streams)

        return types.void(types.uint64, types.uint64, types.uint64, types.uint8), generate

    return make


def _swapper(count: int) -> Any:
    """Return the maker of an operation that turns the bytes of each element of `count` bytes round in a line."""
    whole = ir.VectorType(_BYTE, LINE)
    order = [first + count - 1 - place for first in range(0, LINE, count) for place in range(count)]

    def make(_context: Any, to: Any, at: Any, streams: Any) -> Any:  # noqa: ARG001 - numba counts them
        """Copy a line from any address, turned."""

        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> None:
            to, at, streams = arguments
            line = builder.load(builder.inttoptr(at, whole.as_pointer()), align=1)
            mask = ir.Constant(ir.VectorType(ir.IntType(32), LINE), order)
            _store_line(builder, builder.shuffle_vector(line, line, mask), to, streams)

        return types.void(types.uint64, types.uint64, types.uint8), generate

    return make


def _loader(count: int) -> Any:
    """Return the maker of an operation that loads `count` bytes as an unsigned number."""
    kind = ir.IntType(8 * count)

    def make(_context: Any, at: Any) -> Any:  # noqa: ARG001 - numba counts them
        """Load a number from any address; the first byte is the lowest."""

        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            found = builder.load(builder.inttoptr(arguments[0], kind.as_pointer()), align=1)
            return builder.zext(found, ir.IntType(64))

        return types.uint64(types.uint64), generate

    return make


def _make_prefetch(_context: Any, at: Any) -> Any:  # noqa: ARG001 - numba counts them
    """Ask for the line at an address; one that is not mapped does no harm."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> None:
        address = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [address.type, *[ir.IntType(32)] * 3])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        builder.call(prefetch, [address, *(ir.Constant(ir.IntType(32), number) for number in (_READ, _KEEP, _DATA))])

    return types.void(types.uint64), generate


def _make_settle(_context: Any) -> Any:
    """Order what was streamed before all that this thread does next: non-temporal stores order nothing themselves."""

    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> None:
        builder.fence("seq_cst")

    return types.void(), generate


def _make_pointer(_context: Any, address: Any) -> Any:  # noqa: ARG001 - numba counts them
    """Return an address as a pointer, for numba.carray."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], _BYTE.as_pointer())

    return types.voidptr(types.uint64), generate


# numba calls the makers while it compiles a kernel; its own types describe the makers, not what comes of them.
copy: Any = intrinsic(_make_copy)
copy_piece: Any = intrinsic(_make_copy_piece)
prefetch: Any = intrinsic(_make_prefetch)
copy_line: Any = intrinsic(_make_copy_line)
weave2: Any = intrinsic(_weaver(2))
weave4: Any = intrinsic(_weaver(4))
weave8: Any = intrinsic(_weaver(8))
load1: Any = intrinsic(_loader(1))
load2: Any = intrinsic(_loader(2))
load4: Any = intrinsic(_loader(4))
load8: Any = intrinsic(_loader(8))
swap2: Any = intrinsic(_swapper(2))
swap4: Any = intrinsic(_swapper(4))
swap8: Any = intrinsic(_swapper(8))
settle: Any = intrinsic(_make_settle)
pointer: Any = intrinsic(_make_pointer)


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
