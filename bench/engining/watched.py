"""Watched: an exchange that tells how long its messages kept the rank waiting, and can send them again alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter

import torch
from torch import Tensor
from torch.profiler import record_function

from voxload.engine import Exchange, Pending
from voxload.engine.exchange.protocol import registered

WAIT, SEND = "exchange: wait", "exchange: send"
"""Labels in a profile."""

Replay = Callable[[Exchange], object]
"""One call of an exchange, made again with tensors like those of the first time."""


class Watched:
    """An Exchange that hands everything on to another one.

    Parameters
    ----------
    inner
        The exchange that carries the messages.
    """

    def __init__(self, inner: Exchange) -> None:
        self._inner = inner
        self.carries_graph = inner.carries_graph
        self.key = registered(self)
        self.waited = 0.0
        """Seconds in the exchange since this was set to 0."""
        self.received = 0
        """Bytes that were received since this was set to 0."""
        self._calls: list[Replay] | None = None

    def __deepcopy__(self, memo: dict[int, object]) -> Watched:
        return self

    def start(self, axis: int, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> WatchedPending:
        """Hand on; see Exchange."""
        self.received += sum(tensor.nbytes for tensor in incoming.values())
        if self._calls is not None:
            again = _like(outgoing), _like(incoming)
            self._calls.append(lambda exchange: exchange.start(axis, *again).wait())
        with self.clock(SEND):
            pending = self._inner.start(axis, outgoing, incoming)
        return WatchedPending(self, pending)

    def reduce(self, tensor: Tensor, *, world: bool) -> None:
        """Hand on; see Exchange."""
        if self._calls is not None:
            again = torch.zeros_like(tensor)
            self._calls.append(lambda exchange: exchange.reduce(again, world=world))
        with self.clock(WAIT):
            self._inner.reduce(tensor, world=world)

    def share(self, numbers: Sequence[int]) -> list[tuple[int, ...]]:
        """Hand on; see Exchange."""
        if self._calls is not None:
            again = tuple(numbers)
            self._calls.append(lambda exchange: exchange.share(again))
        with self.clock(WAIT):
            return self._inner.share(numbers)

    @contextmanager
    def clock(self, label: str) -> Iterator[None]:
        """Count the time of what is done inside."""
        begin = perf_counter()
        with record_function(label):
            yield
        self.waited += perf_counter() - begin

    def record(self, step: Callable[[], object]) -> Callable[[], None]:
        """Carry out a step; return what makes its calls of the exchange again, one after the other."""
        self._calls = []
        step()
        calls, self._calls = self._calls, None

        def again() -> None:
            """Send the same messages, and nothing else."""
            for call in calls:
                call(self._inner)

        return again


class WatchedPending:
    """Messages under way; see Pending."""

    def __init__(self, exchange: Watched, inner: Pending) -> None:
        self._exchange = exchange
        self._inner = inner

    def wait(self) -> None:
        """Wait, and count the time."""
        with self._exchange.clock(WAIT):
            self._inner.wait()


def _like(tensors: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """Return tensors of the same shapes and types."""
    return {peer: torch.zeros_like(tensor) for peer, tensor in tensors.items()}
