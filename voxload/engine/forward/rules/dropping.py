"""Dropout: the same elements are dropped however a tensor is cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.dropout import hashed
from voxload.engine.forward.distributions import places_of
from voxload.engine.forward.recording import Call
from voxload.engine.forward.rules.windows import bound
from voxload.engine.forward.ruling import Here, Ruling, Wishes
from voxload.engine.forward.sharding import Sharding

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

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:
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


def drop(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what dropout does: blocks stay where they are; see Rule."""
    return Ruling(cuts, cuts, Drop(cuts[0]))
