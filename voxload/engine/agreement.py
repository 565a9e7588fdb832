"""agree: the ranks' handshake as an operator of torch, so that a compiled network still begins with it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from voxload.engine.compiling import keep_order
from voxload.errors import InternalError

if TYPE_CHECKING:
    from voxload.engine.sharded import Sharded

_NETWORKS: WeakValueDictionary[int, Sharded] = WeakValueDictionary()
_NEXT = count(1)


def ticket_of(network: Sharded) -> int:
    """Return a number for `network`, under which `agree` finds it as long as it lives."""
    ticket = next(_NEXT)
    _NETWORKS[ticket] = network
    return ticket


def agree(x: Tensor, ticket: int) -> Tensor:
    """Return the seed of this pass, an int64 scalar, once the ranks of the group have agreed to begin it with `x`."""
    seed: Tensor = _agree(x, ticket)
    return seed


@torch.library.custom_op("voxload::agree", mutates_args=())
def _agree(x: Tensor, ticket: int) -> Tensor:
    """Carry out the handshake."""
    network = _NETWORKS.get(ticket)
    if network is None:
        raise InternalError("a compiled split network", found="a network that is gone")
    return network.agreed(x)[1]


@_agree.register_fake
def _(x: Tensor, ticket: int) -> Tensor:  # noqa: ARG001 - the operator's own signature
    return torch.empty((), dtype=torch.int64, device="cpu")


keep_order("voxload::agree")
