"""Tensors as the engine makes them: laid out in memory like a block, and brought to a device without waiting for it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Memory formats with the channels of a voxel side by side, by the number of dimensions."""


def autocast_type(device: str) -> torch.dtype | None:
    """Return to what autocast brings operands on a kind of device; None where it is off, and its type means nothing."""
    if device == "meta":  # which knows of none
        return None
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def empty_like_block(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return memory of a shape, laid out as `x` is: a copy between two layouts costs several times one within one.

    Messages are not laid out so, but row by row: ranks may have other layouts than their peers.
    """
    return torch.empty(list(shape), dtype=x.dtype, device=x.device, memory_format=_format(x))


def zeros_like_block(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return zeros of a shape, laid out as `x` is."""
    return empty_like_block(x, shape).zero_()


def dense(x: Tensor) -> Tensor:
    """Return `x`, copied where it has gaps in memory or one value in several places; its layout stays."""
    return x.contiguous(memory_format=_format(x))


def packed(slabs: Sequence[Tensor], dim: int) -> Tensor:
    """Return the slabs of a message in a row; one alone is no copy."""
    return slabs[0] if len(slabs) == 1 else torch.cat(list(slabs), dim)


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Return numbers of the host on a device, behind what it was asked to do, for which the host does not wait.

    Host memory that is not pinned has been read when the call returns (CUDA C++ Programming Guide, asynchronous calls).
    """
    return values.to(device, non_blocking=True)


def _format(x: Tensor) -> torch.memory_format:
    """Return a tensor's memory format; with one channel both are the same, and the contiguous one is meant."""
    is_last = x.ndim in _CHANNELS_LAST and x.shape[1] > 1 and x.stride(1) == 1 and not x.is_contiguous()
    return _CHANNELS_LAST[x.ndim] if is_last else torch.contiguous_format
