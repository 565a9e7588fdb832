"""agree: the ranks' handshake as an operator of torch, so that a compiled network still begins with it."""

from __future__ import annotations

from itertools import count
from typing import Any, Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from voxload.engine.compiling import keep_order
from voxload.errors import InternalError


class Agreeing(Protocol):
    """A split network, or one of its passes in a graph."""

    def agreed(self, x: Tensor) -> tuple[Any, Tensor]:
        """Return what the ranks agree on for a pass over `x`, and its seed, an int64 scalar."""


_KNOWN: WeakValueDictionary[int, Agreeing] = WeakValueDictionary()
_NEXT = count(1)


def ticket_of(one: Agreeing) -> int:
    """Return a number for `one`, under which `agree` finds it as long as it lives."""
    ticket = next(_NEXT)
    _KNOWN[ticket] = one
    return ticket


def agree(x: Tensor, ticket: int) -> Tensor:
    """Return the seed of this pass, an int64 scalar, once the ranks of the group have agreed to begin it with `x`."""
    seed: Tensor = _agree(x, ticket)
    return seed


@torch.library.custom_op("voxload::agree", mutates_args=())
def _agree(x: Tensor, ticket: int) -> Tensor:
    """Carry out the handshake."""
    one = _KNOWN.get(ticket)
    if one is None:
        raise InternalError("a compiled split network", found="a network that is gone")
    return one.agreed(x)[1]


@_agree.register_fake
def _(x: Tensor, ticket: int) -> Tensor:  # noqa: ARG001 - the operator's own signature
    return torch.empty((), dtype=torch.int64, device="cpu")


keep_order("voxload::agree")
