"""Whether ranks begin alike: an optimiser that sends updates alone would never bring their weights together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.launch.collectives import all_gathered
from voxload.parallel.lion.levels import Levels

_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers of so many bytes."""
_AT_ONCE = 2**22
_PERIOD = 65521  # a prime: no layer's extents are multiples


def check_alike(groups: Sequence[Mapping[str, Any]], grid: ProcessGrid, levels: Levels) -> None:
    """Raise UsageError on all ranks where some have other parameters, options or weights than the first."""
    if grid.world_size == 1:
        return
    options = [[each[name] for name in ("betas", "weight_decay", "momentum", "steps", "lr")] for each in groups]
    shapes = [[(tuple(one.shape), str(one.dtype), one.requires_grad) for one in each["params"]] for each in groups]
    setting = [grid.spatial, str(levels.combine), levels.bits, options]
    weights = [_sum(each) for group in groups for each in group["params"]]
    mine = [_digest(setting), _digest(shapes), _digest(weights)]
    for number, theirs in enumerate(all_gathered(mine, list[str])):
        for what, own, other in zip(("options", "parameters", "weights"), mine, theirs, strict=True):
            if own != other:
                raise UsageError(
                    f"Lion on {grid.world_size} ranks",
                    found=f"other {what} on rank {number} than on rank {grid.rank}",
                    expected="the same on all of them",
                    remedy="seed them alike before the network is made, or load one state, or use "
                    "DistributedDataParallel, which sends the first rank's weights"
                    if what == "weights"
                    else "make the optimiser alike on all ranks",
                )


def _sum(parameter: Tensor) -> int:
    """Return the sum of a parameter's bits as whole numbers, which is the same on any device."""
    bits = parameter.detach().contiguous().view(-1).view(_WHOLE[parameter.element_size()])
    total = 0
    for first in range(0, len(bits), _AT_ONCE):
        some = bits[first : first + _AT_ONCE].to(torch.int64)
        # Neighbours weigh otherwise, or weights in another order would look the same.
        total += int((some * (torch.arange(len(some), device=some.device) % _PERIOD + 1)).sum())
    return total


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()
