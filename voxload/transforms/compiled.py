"""Compiled chains: one kernel of a chain, made by torch.compile for one shape.

It is the device's way, tested on the CPU too. Where torch.compile is switched off by its own
switches (``TORCH_COMPILE_DISABLE=1``, ``torch.compiler.set_stance("force_eager")``) the chain runs step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

import torch

from voxload.transforms.chain import Step, columns_of, run

_KEPT = 64
"""Kernels that are kept: a loader needs one for its batches and one for the last, smaller one."""
Chain = Callable[[torch.Tensor], torch.Tensor]


def compiled_chain(steps: tuple[Step, ...], volumes: torch.Tensor, *, channels_last: bool) -> Chain:
    """Return the kernel for volumes like these; compiled at its first call, which takes seconds."""
    return _chain(steps, (volumes.device, volumes.dtype, volumes.shape, volumes.stride()), channels_last)


@lru_cache(maxsize=_KEPT)
def _chain(
    steps: tuple[Step, ...], like: tuple[torch.device, torch.dtype, torch.Size, Any], channels_last: bool
) -> Chain:
    device, _, shape, _ = like
    columns = columns_of(steps, device, len(shape) - 2)

    def chain(volumes: torch.Tensor, *flat: torch.Tensor) -> torch.Tensor:
        left = iter(flat)
        values = run(volumes, steps, [tuple(next(left) for _ in step.columns) for step in steps])
        return values.contiguous(memory_format=torch.channels_last_3d) if channels_last else values

    # torch.compile counts recompilations by code object, and gives up beyond a few: each shape gets code of its own.
    own: Any = FunctionType(
        chain.__code__.replace(), chain.__globals__, chain.__name__, chain.__defaults__, chain.__closure__
    )
    kernel: Callable[..., torch.Tensor] = torch.compile(own, fullgraph=True, dynamic=False)
    flat = tuple(column for one in columns for column in one)
    return lambda volumes: kernel(volumes, *flat)
