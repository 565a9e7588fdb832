"""Workspace: memory that kernels take beside their results, as far as torch's sources say how much that is; pure.

On the host torch's own convolutions unfold what they slide over into columns (aten/src/ATen/native/ConvolutionMM3d.cpp
and NaiveConvolutionTranspose3d.cpp); oneDNN's bring memory of their own, outside of torch's allocator.
"""

from __future__ import annotations

from math import prod

from voxload.plan.costs.kernels import kind_of
from voxload.plan.trace.operation import Operation, itemsize
from voxload.plan.trace.stencils import CONVOLUTION, CONVOLUTION_BACKWARD


def workspace_of(operation: Operation, device: str) -> int:
    """Return the bytes that an operation takes while it runs, beside what it gives."""
    if device != "cpu" or operation.name not in (CONVOLUTION, CONVOLUTION_BACKWARD):
        return 0
    kind = kind_of(operation, device)
    is_forward = operation.name == CONVOLUTION
    weight = operation.shapes[1 if is_forward else 2]
    item = itemsize(operation.dtype)
    window = prod(weight[2:])
    if "SlowTranspose3d" in kind:
        source = operation.shapes[0] if is_forward else operation.shapes[1]
        return weight[1] * window * prod(source[2:]) * item
    if "Slow3d" in kind and window > 1:
        result = operation.results[0] if is_forward else operation.shapes[0]
        return weight[1] * window * result[0] * prod(result[2:]) * item
    return 0
