"""Shares: what the time of a training step goes to, from torch's profiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from time import perf_counter

import torch
from torch.profiler import ProfilerActivity, profile

from bench.engining.watched import SEND, WAIT

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
REST = "between operators"
"""What no operator accounts for: Python, autograd, waiting for the last gradients."""


def kinds() -> tuple[str, ...]:
    """Return the names of all kinds, in order."""
    return (*(name for name, _ in _KINDS), "other operators", REST)


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
    found = dict.fromkeys(kinds(), 0.0)
    for event in watch.key_averages():
        # Events of other threads' progress lie beside the step's own and would count twice, as would kernels, whose
        # time is that of the operators which ask for them.
        if not event.is_async and event.device_type.name == "CPU":
            own = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            found[_kind(event.key)] += own / 1e6
    found[REST] = max(0.0, whole - sum(found.values()))
    return {kind: seconds / repeats for kind, seconds in found.items()}


def _kind(operator: str) -> str:
    return next((name for name, pattern in _KINDS if re.search(pattern, operator)), "other operators")
