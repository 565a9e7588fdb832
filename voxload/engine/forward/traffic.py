"""Traffic: what every call of a planned forward fetches, as numbers for a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from voxload.engine.forward.plan_cache import PlannedPass
from voxload.engine.forward.planning import Fallback, PlannedCall
from voxload.engine.forward.recording import Call, name_of
from voxload.engine.forward.redistribution import Move
from voxload.engine.forward.rules.features import Weighted
from voxload.engine.forward.rules.slide import Slide
from voxload.engine.forward.sharding import Sharding


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one rank receives."""

    messages: int = 0
    """Messages."""
    elements: int = 0
    """Numbers."""

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.messages + other.messages, self.elements + other.elements)


@dataclass(frozen=True, slots=True)
class Explained:
    """One call that fetches, or that runs on what is made whole."""

    call: Call
    before: Sharding
    """Cut of the first value that it takes, as it is."""
    after: Sharding
    """Cut of the first value that it gives."""
    received: Traffic
    """What this rank receives for it."""
    fallback: Fallback | None
    """Why it, or a part of it, is made whole, where it is."""

    @property
    def name(self) -> str:
        """Name of the function."""
        return name_of(self.call.function)


def explained(planned: PlannedPass, coords: Sequence[int]) -> Iterator[Explained]:
    """Yield the calls that fetch anything, or run whole, in order, as the rank at `coords` of its group sees them."""
    for call, step in planned.plan.sequence:
        cuts = [cut for cut in step.taken if not cut.is_whole] or list(step.taken)
        received = sum((_moved(move, coords) for move in step.moves), Traffic())
        received += _slid(step, coords) + _added(step, coords)
        if received.messages or step.fallback is not None:
            yield Explained(call, cuts[0], step.results[0] if step.results else cuts[0], received, step.fallback)


def _moved(move: Move | None, coords: Sequence[int]) -> Traffic:
    """Return what a rank receives while a value is brought to another cut."""
    total = Traffic()
    for step in move.steps if move is not None else ():
        total += Traffic(*step.received(coords))
    return total


def _added(step: PlannedCall, coords: Sequence[int]) -> Traffic:
    """Return what a rank receives of what the ranks' own channels give, which is added up."""
    scatters = step.action.scatters if isinstance(step.action, Weighted) else ()
    return sum((Traffic(*each.given_back(coords)) for each in scatters), Traffic())


def _slid(step: PlannedCall, coords: Sequence[int]) -> Traffic:
    """Return what a rank receives of what windows read beyond its block."""
    action = step.action.inner if isinstance(step.action, Weighted) else step.action
    slides: Sequence[Slide] = getattr(action, "slides", ())
    total = Traffic()
    sizes = list(step.inputs[0].block_shape(coords)) if slides else []
    for slide in slides:
        if slide.plan is None:
            continue
        part = slide.plan.at(coords[slide.plan.axis], dim=slide.dim)
        others = prod(size for dim, size in enumerate(sizes) if dim != slide.dim)
        total += Traffic(len(part.incoming) if others else 0, part.received * others)
        sizes[slide.dim] = part.needed
    return total
