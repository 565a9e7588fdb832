"""Exchange: the contract of whatever carries slabs between the ranks of a sample group, found by its number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary

from torch import Tensor

from voxload.errors import InternalError


class Pending(Protocol):
    """Messages under way."""

    def wait(self) -> None:
        """Return when every message has arrived and every sent tensor may be reused.

        Raises InternalError, in bounded time, when a peer is lost or does not answer.
        """


class Exchange(Protocol):
    """Carries tensors along the lines of the grid, and sums and a few numbers over a sample group.

    One object per rank, used by one thread at a time. All ranks of a line make the same calls in the same
    order. A peer is named by its place on the line: its coordinate on that axis.
    """

    carries_graph: bool
    """Whether messages are parts of one autograd graph, as only those of one process can be (`Joint`)."""
    key: int
    """Its number in this process, from `registered`: operators of torch find it by that."""

    def start(self, axis: int, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Pending:
        """Begin to send `outgoing` and to receive into `incoming` along spatial `axis`.

        Parameters
        ----------
        axis
            0, 1 or 2 for d, h, w.
        outgoing, incoming
            Contiguous tensors by peer. The exchange keeps them until ``wait`` returns; the caller leaves
            them alone until then.
        """

    def reduce(self, tensor: Tensor, *, world: bool) -> None:
        """Replace `tensor` (contiguous, equal in shape everywhere) by its sum over the group, or over all ranks.

        The result is the same, bit for bit, on all of them. Raises InternalError, in bounded time, like ``wait``.
        """

    def share(self, numbers: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the `numbers` (64-bit, equally many everywhere) of every rank of the sample group, in its order."""


_EXCHANGES: WeakValueDictionary[int, Exchange] = WeakValueDictionary()
_NEXT = count(1)


def registered(exchange: Exchange) -> int:
    """Return a new number for `exchange`, under which `exchange_at` finds it as long as it lives. Thread-safe."""
    key = next(_NEXT)
    _EXCHANGES[key] = exchange
    return key


def exchange_at(key: int) -> Exchange:
    """Return the exchange that has this number; raises InternalError when it is gone."""
    exchange = _EXCHANGES.get(key)
    if exchange is None:
        raise InternalError("a split network", found="an exchange that is gone", remedy="keep the model's own alive")
    return exchange
