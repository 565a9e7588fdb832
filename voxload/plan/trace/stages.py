"""Stages: the traced step of a network that is a chain of parts, dealt out to runs of parts; pure.

Paths of operations and names of gradients begin with the number of their part, as those of a `torch.nn.Sequential` do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from voxload.plan.trace.operation import Phase, StepTrace


@dataclass(frozen=True, slots=True)
class PartSize:
    """What a part of a network has for good."""

    weights: int
    """Bytes of parameters and buffers."""
    trained: int
    """Bytes of parameters that have a gradient."""


@dataclass(frozen=True)
class ChainTrace:
    """A step of a chain of parts."""

    step: StepTrace
    parts: tuple[int, ...]
    """Number of the part that each operation belongs to."""
    sizes: tuple[PartSize, ...]
    """Of each part."""

    @classmethod
    def of(cls, step: StepTrace, sizes: Sequence[PartSize]) -> ChainTrace:
        """Return a traced step by parts.

        What has no part's path belongs to that of the operation before it: the loss to the last part, sums of
        gradients to the part that gave the last of them. An optimiser does equally much with each parameter, in order.
        """
        found, last = list[int](), 0
        updates = sum(each.phase is Phase.UPDATE for each in step.operations)
        weights = Counter(number_of(each.name) or 0 for each in step.gradients)
        owners = [part for part in sorted(weights) for _ in range(weights[part])]
        done = 0
        for each in step.operations:
            if each.phase is Phase.UPDATE:
                last = owners[done * len(owners) // updates] if owners else 0
                done += 1
            else:
                number = number_of(each.path)
                last = last if number is None else number
            found.append(last)
        return cls(step, tuple(found), tuple(sizes))

    def stage(self, first: int, last: int) -> StepTrace:
        """Return the step of those that have the parts from `first` up to another, that one not included."""
        places = [place for place, part in enumerate(self.parts) if first <= part < last]
        step = self.step

        def moved(place: int) -> int:
            """Return how many of the stage's operations come before one of all."""
            return bisect_left(places, place)

        own = set(places)
        allocations = (
            replace(each, made=moved(each.made), freed=moved(each.freed))
            for each in step.allocations
            if each.made in own
        )
        gradients = (
            replace(each, ready=moved(each.ready))
            for each in step.gradients
            if first <= (number_of(each.name) or 0) < last
        )
        trained = sum(each.trained for each in self.sizes[first:last])
        whole = max(sum(each.trained for each in self.sizes), 1)
        return StepTrace(
            tuple(step.operations[place] for place in places),
            tuple(allocations),
            tuple(gradients),
            sum(each.weights for each in self.sizes[first:last]),
            step.state * trained // whole,
        )


def number_of(path: str) -> int | None:
    """Return the part that a path begins with; None where it begins with none.

    >>> number_of("3.features.0"), number_of("")
    (3, None)
    """
    head = path.partition(".")[0]
    return int(head) if head.isdigit() else None
