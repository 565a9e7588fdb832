"""Addresses: what numba lacks for kernels that write to many arrays at once, as plain machine operations.

A read may fill many arrays (the crops of a batch, the pieces of a periodic block), whose number is not known when a
kernel is compiled. So a kernel's plan holds the address of each row that is written, and these operations reach it.
Nothing is checked here: whoever makes a plan has checked every bound, and keeps the arrays alive.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

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
settle: Any = intrinsic(_make_settle)
pointer: Any = intrinsic(_make_pointer)
