"""Step profile: what a training step holds in memory, and what its time goes to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from time import perf_counter

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from bench.engining.watched import SEND, WAIT

_ALLOCATION = "[memory]"
"""Name of torch's events for each allocation and each release."""
_KINDS = (
    ("convolution forward, oneDNN", r"mkldnn_conv"),
    ("convolution forward, im2col", r"slow_conv"),
    ("convolution backward", r"convolution_backward|ConvolutionBackward"),
    ("convolution forward, others", r"conv"),
    ("pooling", r"pool"),
    ("rectifier", r"relu"),
    ("fully connected", r"addmm|aten::mm|linear"),
    ("exchange: wait", re.escape(WAIT)),
    ("exchange: send", re.escape(SEND)),
    ("sum of gradients", r"allreduce|all_reduce|DistributedDataParallel|gloo|nccl|c10d"),
    ("update", r"Optimizer|_foreach"),
    ("copies and fills", r"copy_|aten::cat|aten::zero|aten::fill|aten::clone|aten::contiguous|aten::add_"),
    ("the engine's operators", r"voxload"),
)
"""Kinds by patterns of operators' names; the first that fits counts."""
_OTHERS = "other operators"
_REST = "between operators"
"""What no operator accounts for: Python, autograd, waiting for the last gradients."""
KINDS = (*(name for name, _ in _KINDS), _OTHERS, _REST)
"""Names of all kinds, in order."""


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


def seconds_by_kind(step: Callable[[], object], device: torch.device, *, repeats: int) -> dict[str, float]:
    """Return the seconds of a step, a mean of several, by kind: operators' own times, without what they called."""
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as watch:
        begin = perf_counter()
        for _ in range(repeats):
            step()
        if on_gpu:
            torch.cuda.synchronize(device)
        whole = perf_counter() - begin
    found = dict.fromkeys(KINDS, 0.0)
    for event in watch.key_averages():
        # Events of other threads' progress lie beside the step's own and would count twice, as would kernels, whose
        # time is that of the operators which ask for them.
        if not event.is_async and event.device_type.name == "CPU":
            own = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            found[_kind(event.key)] += own / 1e6
    found[_REST] = max(0.0, whole - sum(found.values()))
    return {kind: seconds / repeats for kind, seconds in found.items()}


def _kind(operator: str) -> str:
    return next((name for name, pattern in _KINDS if re.search(pattern, operator)), _OTHERS)
