"""Stages: the traced step of a network that is a chain of parts, dealt out to runs of parts; pure.

Paths of operations and names of gradients begin with the number of their part, as those of a `torch.nn.Sequential` do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from voxload.plan.trace.operation import Phase, StepTrace

_FILLS = frozenset({"aten.zero_", "aten.fill_"})
"""What is done in place to what an optimiser makes for the first time; all others in place are updates."""


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
        gradients to the part that gave the last of them. An optimiser does equally much with each parameter, in order:
        first it makes what it keeps of all, then it updates them.
        """
        found, last = list[int](), 0
        update = iter(_updating(step))
        for each in step.operations:
            number = next(update) if each.phase is Phase.UPDATE else number_of(each.path)
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
            replace(each, made=moved(each.made), freed=moved(each.freed), used=moved(each.used))
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


def _updating(step: StepTrace) -> Iterator[int]:
    """Yield the part that each operation of the update is for."""
    names = [each.name for each in step.of(Phase.UPDATE)]
    owners = sorted(number_of(each.name) or 0 for each in step.gradients)
    first = next((place for place, name in enumerate(names) if name.endswith("_") and name not in _FILLS), 0)
    for count in (first, len(names) - first):
        yield from (owners[number * len(owners) // count] if owners else 0 for number in range(count))


def number_of(path: str) -> int | None:
    """Return the part that a path begins with; None where it begins with none.

    >>> number_of("3.features.0"), number_of("")
    (3, None)
    """
    head = path.partition(".")[0]
    return int(head) if head.isdigit() else None
