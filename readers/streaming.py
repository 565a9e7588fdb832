"""Streaming: the kernel that pastes whole cache lines past the processor's caches.

An ordinary store first reads the line that it changes, so that writing a block larger than the caches moves twice
its bytes. Non-temporal stores of whole lines do not, which is how memcpy copies large blocks. Parts of lines are
slower so: only boxes that consist of whole lines of the target are streamed.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped] # ships no types
from numba import types, uint8, uint64
from numba.extending import intrinsic

from voxload.readers.kernels import compiled

LINE = 64
"""Bytes of a cache line; where a processor has longer ones, streaming gains less and is no less correct."""
_WORDS = ir.VectorType(ir.IntType(64), LINE // 8)


def _make_stream_line(_context: Any, target: Any, source: Any) -> Any:  # noqa: ARG001 - numba counts them
    """Copy a line from any address to an aligned one, which is not read before."""

    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> None:
        to, at = (builder.inttoptr(address, _WORDS.as_pointer()) for address in arguments)
        store = builder.store(builder.load(at, align=1), to, align=LINE)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))

    return types.void(types.uint64, types.uint64), generate


def _make_settle(_context: Any) -> Any:
    """Order what was streamed before all that this thread does next: non-temporal stores order nothing themselves."""

    def generate(_target: Any, builder: Any, _signature: Any, _arguments: Any) -> None:
        builder.fence("seq_cst")

    return types.void(), generate


# numba calls the makers while it compiles `stream`; its own types describe the makers, not what comes of them.
_stream_line: Any = intrinsic(_make_stream_line)
_settle: Any = intrinsic(_make_settle)


@compiled(uint8)
def stream(source: Any, target: Any, geometry: Any) -> None:
    """Copy a box whose last axis is a run in both; its last extent counts lines, strides and places count bytes."""
    n0, n1, n2, n3, s0, s1, s2, _, t0, t1, t2, _, first, to = geometry
    line = uint64(LINE)
    start, end = uint64(source.ctypes.data) + first, uint64(target.ctypes.data) + to
    for a in range(n0):
        for b in range(n1):
            for c in range(n2):
                i = start + a * s0 + b * s1 + c * s2
                o = end + a * t0 + b * t1 + c * t2
                for k in range(n3):
                    _stream_line(o + k * line, i + k * line)
    _settle()
