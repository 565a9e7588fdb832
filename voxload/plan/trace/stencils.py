"""Stencils: operations whose windows slide over volumes, and how far they reach beyond a block; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from voxload.plan.trace.operation import Operation

CONVOLUTION, CONVOLUTION_BACKWARD = "aten.convolution", "aten.convolution_backward"


@dataclass(frozen=True, slots=True)
class Stencil:
    """An operation that slides windows."""

    source: tuple[int, ...]
    """Shape of the volume over which they slide, in both passes."""
    result: tuple[int, ...]
    """Shape of what they give."""
    reach: tuple[tuple[int, int], ...]
    """Voxels of the source in front of a block and behind it, along each axis."""
    is_transposed: bool = False
    gives_source: bool = False
    """Whether the operation makes a gradient of the source."""


def stencil_of(operation: Operation) -> Stencil | None:
    """Return how an operation slides windows; None where it does not, or is not known to."""
    name = operation.name
    if name in (CONVOLUTION, CONVOLUTION_BACKWARD):
        return _convolution(operation)
    return _pooling(operation) if "_pool3d" in name and "adaptive" not in name else None


def _convolution(operation: Operation) -> Stencil | None:
    is_backward = operation.name == CONVOLUTION_BACKWARD
    # A backward pass is told the size of the bias first, where there is one.
    settings: Any = operation.settings[1:] if isinstance(operation.settings[3], tuple) else operation.settings
    weight = operation.shapes[2 if is_backward else 1]
    if len(weight) != 5:
        return None
    stride, padding, dilation, is_transposed, _, _, *mask = settings
    one = _transposed_window if is_transposed else _window
    reach = tuple(map(one, weight[2:], stride, padding, dilation))
    if is_backward:
        return Stencil(operation.shapes[1], operation.shapes[0], reach, is_transposed, bool(mask[0][0]))
    return Stencil(operation.shapes[0], operation.results[0], reach, is_transposed)


def _pooling(operation: Operation) -> Stencil:
    kernel, stride, padding = map(_triple, operation.settings[:3])
    reach = tuple(map(_window, kernel, stride or kernel, padding, (1, 1, 1)))
    if "backward" in operation.name:
        return Stencil(operation.results[0], operation.shapes[0], reach, gives_source=True)
    return Stencil(operation.shapes[0], operation.results[0], reach)


def _triple(values: Any) -> tuple[int, ...]:
    """Return a setting for each axis; nothing where it is left out."""
    given = tuple(values) if isinstance(values, tuple) else (values,)
    return given * 3 if len(given) == 1 else given


def _window(kernel: int, stride: int, padding: int, dilation: int) -> tuple[int, int]:
    """Return the reach of windows that lie on multiples of a stride, over blocks of multiples of it."""
    last = dilation * (kernel - 1) - padding - (stride - 1)
    return max(padding, 0), max(last, 0)


def _transposed_window(kernel: int, stride: int, padding: int, dilation: int) -> tuple[int, int]:
    """Return how many inputs beyond a block its outputs take, where each input gives a window of outputs."""
    if kernel <= stride:
        return 0, 0
    beyond = dilation * (kernel - 1) - padding - (stride - 1)
    return max(0, -(-beyond // stride)), max(0, -(-padding // stride))
