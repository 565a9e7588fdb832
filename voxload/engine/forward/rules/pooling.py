"""Adaptive maxima: one number of a volume, which is that of one voxel, the first of those that are the largest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.forward.recording import Call
from voxload.engine.forward.rules.reducing import Partial
from voxload.engine.forward.rules.windows import bound
from voxload.engine.forward.ruling import Here, NoRule, Ruling, Same, Wishes
from voxload.engine.forward.sharding import Sharding
from voxload.engine.tensors import sent

ADAPTIVE_MAXIMA: Mapping[Any, int] = {
    functional.adaptive_max_pool1d: 1,
    functional.adaptive_max_pool2d: 2,
    functional.adaptive_max_pool3d: 3,
}
"""By the number of dimensions that they pool."""
_NAMES = ("input", "output_size", "return_indices")
_FIRST = 2


@dataclass(frozen=True, slots=True)
class First:
    """The largest element over dimensions of which some are cut; of several the one with the first position.

    It alone has the gradient, as in torch's poolings.
    """

    partial: Partial
    cut: Sharding

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:  # noqa: ARG002 - see Action
        """Find its value and its position, and take it from the rank that has it; see Action."""
        x: Tensor = bound(_NAMES, args, kwargs)["input"]
        seen = x.detach().to(torch.float64)
        seen = torch.where(seen.isnan(), inf, seen)  # torch's poolings take a NaN for the largest
        largest = self.partial.extremum(seen, here, is_maximum=True)
        places = self._places(x, here)
        own = torch.where(seen == largest, places, inf)
        first = self.partial.extremum(own, here, is_maximum=False)
        taken = torch.where(own == first, x, torch.zeros((), dtype=x.dtype, device=x.device))
        return self.partial.sum(taken, here)

    def _places(self, x: Tensor, here: Here) -> Tensor:
        """Return the place of each element in row-major order of the dimensions that are pooled; exact below 2^53."""
        dims = range(_FIRST, x.ndim)
        found = torch.zeros((), dtype=torch.float64)
        for number in dims:
            positions = torch.tensor(self.cut.positions(number, here.coords), dtype=torch.float64)
            found = found[..., None] * self.cut.shape[number] + positions
        return sent(found, x.device)


def adapt_maximum(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what an adaptive maximum does that leaves one element; see Rule."""
    given, count = bound(_NAMES, call.args, call.kwargs), ADAPTIVE_MAXIMA[call.function]
    cut = cuts[0]
    if given["return_indices"] or len(call.made) != 1:
        raise NoRule("it returns indices into the whole volume")
    if len(cut.dims) != _FIRST + count:
        raise NoRule("it takes one sample without a batch")
    (made,) = call.made
    dims = tuple(range(_FIRST, len(cut.dims)))
    if not any(number in dims for number, *_ in cut.cuts()):
        return Ruling((cut,), (Sharding((*cut.dims[:_FIRST], *Sharding.whole(made.shape[_FIRST:]).dims)),), Same())
    if prod(made.shape[_FIRST:]) != 1:
        raise NoRule("it leaves several maxima of axes that are cut")
    result = Sharding((*cut.dims[:_FIRST], *Sharding.whole(made.shape[_FIRST:]).dims))
    return Ruling((cut,), (result,), First(Partial.over(cut, dims), cut))
