"""Random numbers, those of dropout among them: the same ones however a tensor is cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import pi, prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.forward.recording import Call
from voxload.engine.forward.rule import Context, Preferences, Ruling, bound
from voxload.engine.forward.sharding import Sharding
from voxload.engine.layers.dropout import hashed
from voxload.engine.run.tensors import empty_like_block
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


DRAWS: frozenset[Any] = frozenset([torch.randn_like, torch.rand_like, torch.randint_like])


@dataclass(frozen=True, slots=True)
class Draw:
    """All numbers of the whole are drawn, one after the other as in one process, and this rank's are kept."""

    cut: Sharding

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:
        """Draw; nothing is sent. See Action."""
        given = dict(kwargs)
        x: Tensor = given.pop("input") if "input" in given else args[0]
        if here.hashes and function in DISTRIBUTIONS:
            places = places_of(self.cut, here.coords, x.ndim)
            return DISTRIBUTIONS[function](places, here.seeds(), given.get("dtype") or x.dtype, x.device)
        drawn = function(empty_like_block(x, self.cut.shape), *args[1:], **given)
        return self.cut.block(drawn, here.coords).clone()


def draw(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what drawing does: numbers are cut as the volume is, whose values do not matter; see Rule."""
    (made,) = call.made
    nbytes = prod(made.shape) * (call.taken[0].dtype.itemsize + made.dtype.itemsize)
    return Ruling(cuts, cuts, Draw(cuts[0]), nbytes)


DROPOUTS: Mapping[Any, int | None] = {
    functional.dropout: None,
    torch.dropout: None,
    functional.dropout1d: 2,
    functional.dropout2d: 2,
    functional.dropout3d: 2,
}
"""Functions, and of how many dimensions an element or a channel is dropped; None for all."""
_NAMES = ("input", "p", "training", "inplace")
_RESOLUTION = 2**32


@dataclass(frozen=True, slots=True)
class Drop:
    """Dropout by a hash of a seed and the global position."""

    cut: Sharding
    """Cut of the tensor."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:
        """Drop; see Action."""
        given = bound(_NAMES, args, kwargs)
        x: Tensor = given["input"]
        share = 0.5 if given["p"] is None else float(given["p"])
        is_training = True if given["training"] is None else bool(given["training"])
        if not is_training or share == 0.0:
            return x
        seed = here.seeds()
        count = DROPOUTS[function]
        places = places_of(self.cut, here.coords, x.ndim if count is None else count)
        keep = hashed(places, seed, x.device) >= int(share * _RESOLUTION)
        keep = keep[(..., *(None,) * (x.ndim - keep.ndim))]
        scale = keep.to(x.dtype) / (1 - share) if share < 1 else torch.zeros_like(x)
        return x.mul_(scale) if given["inplace"] else x * scale


def drop(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what dropout does: blocks stay where they are; see Rule."""
    return Ruling(cuts, cuts, Drop(cuts[0]))
