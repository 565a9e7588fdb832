"""Join: how a convolution joins halos with its block, as it was told or as was measured."""

from __future__ import annotations

import enum
import time
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch


class Join(enum.Enum):
    """How a convolution joins a halo with its block."""

    PAD = "pad"
    """One padded copy of the block, after all messages have arrived."""
    PATCH = "patch"
    """Outputs at the faces are computed again."""
    ADD = "add"
    """What the halo contributes is added to outputs at the faces."""


ROUNDS = 3
"""Times that each way is measured; the fastest counts, so that a first, slow call does no harm."""


class Chooser(Protocol):
    """Chooses for one rank; every rank may choose something else, because messages are the same."""

    @property
    def may_join(self) -> bool:
        """Whether anything but padding may be chosen."""

    def is_measuring(self, key: Hashable) -> bool:
        """Whether it wants to know how long this convolution takes."""

    def choose(self, key: Hashable) -> Join:
        """Return how the convolution that `key` tells from others joins halos this time."""

    def timed(self, key: Hashable, join: Join, device: torch.device) -> AbstractContextManager[None]:
        """Return a context that covers a forward or a backward pass of the convolution."""


@dataclass(frozen=True, slots=True)
class FixedJoin:
    """Always the same way."""

    join: Join
    """The way."""

    @property
    def may_join(self) -> bool:
        """Whether the way is not padding."""
        return self.join is not Join.PAD

    def is_measuring(self, key: Hashable) -> bool:  # noqa: ARG002 - see Chooser
        """Nothing is measured."""
        return False

    def choose(self, key: Hashable) -> Join:  # noqa: ARG002 - see Chooser
        """Return the way."""
        return self.join

    @contextmanager
    def timed(self, key: Hashable, join: Join, device: torch.device) -> Iterator[None]:  # noqa: ARG002 - see Chooser
        """Do nothing about it."""
        yield


@dataclass(slots=True)
class AutotunedJoin:
    """Tries every way in turn, in the passes of the network itself, messages included; then keeps to the fastest.

    So results differ in their last bits between the first passes, and between runs. Not for use by several threads.
    """

    tries: dict[Hashable, int] = field(default_factory=dict)
    """Forward passes so far, by convolution."""
    fastest: dict[tuple[Hashable, Join, bool], float] = field(default_factory=dict)
    """Seconds of the fastest pass, by convolution, way, and whether gradients were recorded: forward or backward."""

    @property
    def may_join(self) -> bool:
        """All ways are tried."""
        return True

    def is_measuring(self, key: Hashable) -> bool:
        """Whether not every way was tried often enough before the pass at hand."""
        return self.tries.get(key, 0) <= ROUNDS * len(Join)

    def choose(self, key: Hashable) -> Join:
        """Return the next way to try, or the fastest."""
        ways = tuple(Join)
        done = self.tries.get(key, 0)
        self.tries[key] = done + 1
        return ways[done % len(ways)] if done < ROUNDS * len(ways) else self.best(key)

    def best(self, key: Hashable) -> Join:
        """Return the way with the smallest sum of a forward and a backward pass, of those that were measured."""
        return min(Join, key=lambda join: sum(self.fastest.get((key, join, back), 0.0) for back in (False, True)))

    @contextmanager
    def timed(self, key: Hashable, join: Join, device: torch.device) -> Iterator[None]:
        """Measure a pass; on a GPU what was asked of it before is waited for."""
        if not self.is_measuring(key):
            yield
            return
        is_backward = torch._C._current_graph_task_id() != -1  # noqa: SLF001 - torch has no public way to ask
        _wait_for(device)
        start = time.perf_counter()
        yield
        _wait_for(device)
        place = key, join, is_backward
        self.fastest[place] = min(self.fastest.get(place, float("inf")), time.perf_counter() - start)


def _wait_for(device: torch.device) -> None:
    """Wait until a GPU has done what it was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
