"""Functions that keep elements in their row-major order, and those that put dimensions in another order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from voxload.engine.forward.recording import Call
from voxload.engine.forward.regroup import NoRegrouping, regroup
from voxload.engine.forward.ruling import Here, NoRule, Ruling, Same, Wishes
from voxload.engine.forward.sharding import Sharding

RESHAPES: frozenset[Any] = frozenset(
    [
        *(getattr(torch, name) for name in ("reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "ravel")),
        *(getattr(Tensor, name) for name in ("reshape", "reshape_as", "flatten", "unflatten", "squeeze", "unsqueeze")),
        *(getattr(Tensor, name) for name in ("view", "view_as", "ravel")),
    ]
)
"""Functions that keep row-major order."""
ORDERS: frozenset[Any] = frozenset(
    [
        *(
            getattr(torch, name)
            for name in ("permute", "transpose", "movedim", "moveaxis", "swapaxes", "swapdims", "t")
        ),
        *(
            getattr(Tensor, name)
            for name in ("permute", "transpose", "movedim", "moveaxis", "swapaxes", "swapdims", "t")
        ),
        *(getattr(Tensor, name).__get__ for name in ("T", "mT", "H", "mH")),
    ]
)
"""Functions that put dimensions in another order."""


@dataclass(frozen=True, slots=True)
class Reshape:
    """A reshape of this rank's block."""

    result: Sharding
    """Cut of the reshaped tensor."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:  # noqa: ARG002 - see Action
        """Reshape; see Action."""
        return args[0].reshape(self.result.block_shape(here.coords))


def reshape(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a reshape does: blocks are reshaped, where dimensions begin and end between cut axes; see Rule."""
    (made,) = call.made
    if made.dtype != call.taken[0].dtype:
        raise NoRule("it looks at the bytes as another type")
    try:
        found = regroup(cuts[0], made.shape)
    except NoRegrouping as error:
        raise NoRule("a dimension would begin or end within an axis that is cut") from error
    others = tuple(Sharding.whole(cut.shape) for cut in cuts[1:])
    return Ruling((found.source, *others), (found.result,), Reshape(found.result))


def reorder(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what another order of dimensions does: blocks are ordered alike; see Rule."""
    # Dimensions of the extents 1, 2, 3... tell where each went.
    numbered = torch.empty([number + 1 for number in range(len(cuts[0].dims))], device="meta")
    order = [extent - 1 for extent in call.function(numbered, *call.args[1:], **call.kwargs).shape]
    return Ruling(cuts, (cuts[0].ordered(order),), Same())
