"""Held: the bytes that a training step keeps for its backward pass, and the most that it has at any time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

_ALLOCATION = "[memory]"
"""Name of torch's events for each allocation and each release."""


def saved_bytes(forward: Callable[[], Tensor], weights: Iterable[Tensor]) -> int:
    """Return the bytes that a forward pass saves for the backward pass: distinct storages, without the weights."""
    known = {weight.untyped_storage().data_ptr() for weight in weights}
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        """Note a tensor that is saved; that it is saved keeps its address from being used again."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    total = sum(sizes.values())
    del result
    return total


def peak_bytes(step: Callable[[], object], device: torch.device) -> int:
    """Return the most bytes that torch's allocator had given out during a step, beyond those before it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watch:
        step()
    events = watch.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == _ALLOCATION)
    level = peak = 0
    for _, nbytes in changes:
        level += nbytes
        peak = max(peak, level)
    return peak
