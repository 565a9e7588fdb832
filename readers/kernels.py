"""Kernels: the one pass that takes voxels from a decoded chunk to where they belong.

Undoing the byte shuffle, turning the byte order, turning the axes, cropping and pasting are one loop, so that a
voxel is written once. numba compiles the kernels when this module is first imported and keeps them on disk. They
hold no interpreter lock and know bits only: a voxel is an unsigned integer of its width, whatever its type.

``geometry`` describes a box of four axes as uint64: extents (4), source strides (4), target strides (4), the place
of its first element in the source and in the target. Unsigned on purpose: for signed indices numba adds the test for
Python's negative ones to every access, and nothing is vectorised. Callers have checked every bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba import uint8, uint16, uint32, uint64

F = TypeVar("F", bound=Callable[..., Any])

_GEOMETRY = numba.types.Array(uint64, 1, "C", readonly=True)


def compiled(*kinds: Any, extra: tuple[Any, ...] = ()) -> Callable[[F], F]:
    """Compile for source and target of each element type now, or take it from the cache on disk."""
    signatures = [
        numba.void(numba.types.Array(kind, 1, "C", readonly=True), numba.types.Array(kind, 1, "C"), _GEOMETRY, *extra)
        for kind in kinds
    ]

    def compile_(function: F) -> F:
        jit: Any = numba.njit
        try:
            compiled: F = jit(signatures, nogil=True, boundscheck=False, cache=True)(function)
        except RuntimeError:  # neither the package nor the home folder can be written: every process compiles
            compiled = jit(signatures, nogil=True, boundscheck=False)(function)
        return compiled

    return compile_


@compiled(uint8, uint16, uint32, uint64)
def paste(source: Any, target: Any, geometry: Any) -> None:
    """Copy a box of elements; strides and places count elements."""
    n0, n1, n2, n3, s0, s1, s2, s3, t0, t1, t2, t3, first, to = geometry
    is_run = s3 == uint64(1) and t3 == uint64(1)
    for a in range(n0):
        for b in range(n1):
            for c in range(n2):
                i = first + a * s0 + b * s1 + c * s2
                o = to + a * t0 + b * t1 + c * t2
                if is_run:
                    for d in range(n3):
                        target[o + d] = source[i + d]
                else:
                    for d in range(n3):
                        target[o + d * t3] = source[i + d * s3]


@compiled(uint8, extra=(uint64,))
def assemble2(source: Any, target: Any, geometry: Any, plane: int) -> None:
    """Put two-byte elements together from bytes that lie `plane` bytes apart, the lowest byte first.

    Strides and places count bytes. A shuffled chunk of N elements has planes N apart and elements 1 apart; a
    big-endian one has planes -1 apart (modulo 2**64) and elements 2 apart.
    """
    n0, n1, n2, n3, s0, s1, s2, s3, t0, t1, t2, t3, first, to = geometry
    is_run = s3 == uint64(1) and t3 == uint64(2)
    for a in range(n0):
        for b in range(n1):
            for c in range(n2):
                i = first + a * s0 + b * s1 + c * s2
                o = to + a * t0 + b * t1 + c * t2
                if is_run:
                    for d in range(n3):
                        e = o + uint64(2) * d
                        target[e] = source[i + d]
                        target[e + uint64(1)] = source[i + plane + d]
                else:
                    for d in range(n3):
                        e = o + d * t3
                        target[e] = source[i + d * s3]
                        target[e + uint64(1)] = source[i + plane + d * s3]


@compiled(uint8, extra=(uint64,))
def assemble4(source: Any, target: Any, geometry: Any, plane: int) -> None:
    """Put four-byte elements together; see `assemble2`."""
    n0, n1, n2, n3, s0, s1, s2, s3, t0, t1, t2, t3, first, to = geometry
    is_run = s3 == uint64(1) and t3 == uint64(4)
    second, third, fourth = plane, uint64(2) * plane, uint64(3) * plane
    for a in range(n0):
        for b in range(n1):
            for c in range(n2):
                i = first + a * s0 + b * s1 + c * s2
                o = to + a * t0 + b * t1 + c * t2
                if is_run:
                    for d in range(n3):
                        e = o + uint64(4) * d
                        target[e] = source[i + d]
                        target[e + uint64(1)] = source[i + second + d]
                        target[e + uint64(2)] = source[i + third + d]
                        target[e + uint64(3)] = source[i + fourth + d]
                else:
                    for d in range(n3):
                        e = o + d * t3
                        target[e] = source[i + d * s3]
                        target[e + uint64(1)] = source[i + second + d * s3]
                        target[e + uint64(2)] = source[i + third + d * s3]
                        target[e + uint64(3)] = source[i + fourth + d * s3]


@compiled(uint8, extra=(uint64,))
def assemble8(source: Any, target: Any, geometry: Any, plane: int) -> None:
    """Put eight-byte elements together; see `assemble2`."""
    n0, n1, n2, n3, s0, s1, s2, s3, t0, t1, t2, t3, first, to = geometry
    for a in range(n0):
        for b in range(n1):
            for c in range(n2):
                i = first + a * s0 + b * s1 + c * s2
                o = to + a * t0 + b * t1 + c * t2
                for d in range(n3):
                    e = o + d * t3
                    f = i + d * s3
                    for k in range(uint64(8)):
                        target[e + k] = source[f + k * plane]
