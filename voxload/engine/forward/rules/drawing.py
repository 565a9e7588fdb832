"""Random numbers like a volume's: the ranks have one state of torch's generator, and draw what one process draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from voxload.engine.forward.distributions import DISTRIBUTIONS, places_of
from voxload.engine.forward.recording import Call
from voxload.engine.forward.ruling import Here, Ruling, Wishes
from voxload.engine.forward.sharding import Sharding
from voxload.engine.tensors import empty_like_block

DRAWS: frozenset[Any] = frozenset([torch.randn_like, torch.rand_like, torch.randint_like])


@dataclass(frozen=True, slots=True)
class Draw:
    """All numbers of the whole are drawn, one after the other as in one process, and this rank's are kept."""

    cut: Sharding

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:
        """Draw; nothing is sent. See Action."""
        given = dict(kwargs)
        x: Tensor = given.pop("input") if "input" in given else args[0]
        if here.hashes and function in DISTRIBUTIONS:
            places = places_of(self.cut, here.coords, x.ndim)
            return DISTRIBUTIONS[function](places, here.seeds(), given.get("dtype") or x.dtype, x.device)
        drawn = function(empty_like_block(x, self.cut.shape), *args[1:], **given)
        return self.cut.block(drawn, here.coords).clone()


def draw(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what drawing does: numbers are cut as the volume is, whose values do not matter; see Rule."""
    (made,) = call.made
    nbytes = prod(made.shape) * (call.taken[0].dtype.itemsize + made.dtype.itemsize)
    return Ruling(cuts, cuts, Draw(cuts[0]), nbytes)
