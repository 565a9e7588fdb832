"""NoExchange: moves nothing, for the speed that a network would have if messages were free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from voxload.engine.exchange.registry import registered
from voxload.grid import ProcessGrid


class NoExchange:
    """An Exchange whose messages never travel: halos hold zeros, sums are the rank's own.

    Results are wrong by design. It measures the ceiling against which the cost of a real exchange is told, and needs
    no other process.

    Parameters
    ----------
    grid
        This rank's view of the grid.
    """

    carries_graph = False

    def __init__(self, grid: ProcessGrid) -> None:
        self._size = grid.group_size
        self.key = registered(self)

    def __deepcopy__(self, memo: dict[int, object]) -> NoExchange:
        return self

    def start(self, axis: int, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> NothingPending:  # noqa: ARG002 - see Exchange
        """Fill `incoming` with zeros: what memory held before could be no number at all."""
        for tensor in incoming.values():
            tensor.zero_()
        return NothingPending()

    def reduce(self, tensor: Tensor, *, world: bool) -> None:
        """Leave `tensor` as it is."""

    def share(self, numbers: Sequence[int]) -> list[tuple[int, ...]]:
        """Return this rank's numbers for every rank: a cut must be given by the whole's shape, not by blocks."""
        return [tuple(numbers)] * self._size


class NothingPending:
    """Messages that were never sent."""

    def wait(self) -> None:
        """Return at once."""
