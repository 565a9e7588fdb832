"""Distributions of random numbers that are hashes of a seed and of positions: the same however a tensor is cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import pi
from typing import Any

import torch
from torch import Tensor

from voxload.engine.dropout import hashed
from voxload.engine.forward.sharding import Sharding
from voxload.errors import UsageError

_BITS = 24
"""Bits of a number from 0 to 1: those that float32 holds."""


def places_of(cut: Sharding, coords: Sequence[int], count: int) -> list[Tensor]:
    """Return the global positions of what the rank at `coords` has along the first `count` dimensions."""
    return [torch.tensor(cut.positions(number, coords), dtype=torch.int64) for number in range(count)]


def uniform(places: Sequence[Tensor], seed: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers from 0 to below 1, for elements at these global positions, one int64 tensor per dimension."""
    if not dtype.is_floating_point:
        raise UsageError("random numbers of a graph", found=str(dtype), expected="a floating-point type")
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    found = (hashed(places, seed, device) >> (32 - _BITS)).to(wide) * 2.0**-_BITS
    return found if dtype == wide else found.to(dtype)


def normal(places: Sequence[Tensor], seed: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return normally distributed numbers; Box and Muller, A Note on the Generation of Random Normal Deviates, 1958."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32 if dtype.is_floating_point else dtype
    radius = (1 - uniform(places, seed, wide, device)).log().mul(-2).sqrt()
    return (radius * (uniform(places, ~seed, wide, device) * (2 * pi)).cos()).to(dtype)


DISTRIBUTIONS: Mapping[Any, Callable[..., Tensor]] = {
    torch.rand: uniform,
    torch.rand_like: uniform,
    torch.randn: normal,
    torch.randn_like: normal,
}
"""Functions that make tensors of random numbers, of a shape or like another tensor."""
