"""StepTrace: what a training step of one rank does, in order; frozen numbers and names."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from voxload.engine.observe import Messages, Total

_ITEMSIZES = {"float64": 8, "float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}


def itemsize(dtype: str) -> int:
    """Return the bytes of a number of a floating-point type; of others, such as indices, 8."""
    return _ITEMSIZES.get(dtype, 8)


class Phase(enum.Enum):
    """Part of a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of torch that computes, copies or sends."""

    name: str
    """As torch has it, such as ``aten.convolution``."""
    phase: Phase
    path: str
    """Path of the module that asked for it; in the backward pass, of whose forward it is the derivative."""
    shapes: tuple[tuple[int, ...], ...]
    """Of the tensors that it takes."""
    results: tuple[tuple[int, ...], ...]
    """Of the tensors that it gives."""
    dtype: str
    """Of the first tensor that it takes, or gives."""
    settings: tuple[object, ...]
    """Arguments that are no tensors, such as strides, in the order of the operator's schema; lists as tuples."""
    flops: int
    """Floating-point operations of convolutions and products of matrices; 0 for all others."""
    moved: int
    """Bytes that it reads and writes, each tensor once."""
    exchanged: Messages | Total | None = None
    """What it exchanges with other ranks."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory of one tensor, for as long as anything has it."""

    nbytes: int
    made: int
    """Number of the operation that made it."""
    freed: int
    """Number of the operation before which it was gone; that of all operations where the step leaves it."""
    path: str
    name: str
    """Of the operation that made it."""
    shape: tuple[int, ...]
    used: int = 0
    """Number of the last operation of the forward pass that took it, or of the one that made it."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of one parameter."""

    name: str
    nbytes: int
    ready: int
    """Number of operations after which it is there."""


@dataclass(frozen=True, slots=True)
class StepTrace:
    """A training step of one rank."""

    operations: tuple[Operation, ...]
    allocations: tuple[Allocation, ...]
    gradients: tuple[Gradient, ...]
    """In the order in which they are there."""
    weights: int
    """Bytes of parameters and buffers that this rank has."""
    state: int
    """Bytes that the optimiser keeps of them."""

    def of(self, phase: Phase) -> Iterator[Operation]:
        """Yield the operations of a part of the step."""
        return (each for each in self.operations if each.phase is phase)
