"""Ways: how each call of a forward can be carried out where layers may use the axes of the grid otherwise; pure.

The ways of a call follow from the cuts of what it takes, and those from the ways of the calls that made it: all that
the rules allow are there, so that whoever knows what each takes can choose the best of all together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from voxload.engine.arithmetic.split_plan import IN_SPACE, Use, Uses
from voxload.engine.forward.layer_uses import WEIGHTED, layer_behind
from voxload.engine.forward.planning import met_later, plan_forward, returned, ruled
from voxload.engine.forward.recording import Call, Recording, Value
from voxload.engine.forward.redistribution import Move, plan_move
from voxload.engine.forward.rule import Action, LayerSplit, NoRule, Preferences, Ruling, whole
from voxload.engine.forward.sharding import Sharding
from voxload.engine.model.pytrees import leaves
from voxload.engine.model.sync_batch_norm import batch_norm_of_world
from voxload.errors import UsageError

MOST = 400
"""Ways of one call, at most."""
_GIVEN = -1
"""Number of the call that stands for what the network is given."""
IsSpace = tuple[bool, bool, bool]


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """One way to carry out a call."""

    taken: tuple[Sharding, ...]
    """Cut of each value that it takes, as it is."""
    moves: tuple[Move | None, ...]
    """What is done with each of them before; None where nothing."""
    action: Action | None
    """What is done then; nothing where the network's results leave it."""
    results: tuple[Sharding, ...]
    """Cut of each value that it gives."""
    uses: Uses = IN_SPACE
    """Of the axes of the grid, by a layer with weights."""
    behind: IsSpace | None = None
    """Whether the next layer with weights uses the axes for space; None where that is all the same."""
    beside: Sharding | None = None
    """Cut of the value that its result meets later, whose blocks its own fit; None where that is all the same."""


@dataclass(frozen=True, slots=True, eq=False)
class CallWays:
    """A call, and all ways to carry it out."""

    call: Call | None
    """None where the network's results leave it."""
    taken: tuple[Value, ...]
    """The values that it takes."""
    sources: tuple[tuple[int, int], ...]
    """Number of the call that made each value that it takes, and the value's place there; -1 for the input."""
    ways: tuple[Way, ...]
    behind: int | None = None
    """Number of the next layer with weights, of a layer with weights."""
    meets: tuple[int, int] | None = None
    """Number of the call that made the value that its result meets later, and the value's place there."""

    @property
    def is_layer(self) -> bool:
        """Whether it is a layer with weights."""
        return self.call is not None and self.call.function in WEIGHTED


def ways_of(
    recording: Recording,
    given: Sequence[Sharding],
    mesh: Sequence[int],
    *,
    uses: Sequence[Uses],
    min_width: int = 0,
) -> tuple[CallWays, ...]:
    """Return the calls of a forward with all their ways; the last one is where the results leave the network.

    Parameters
    ----------
    recording
        What the forward asks of torch.
    given
        Cuts of what it is called with.
    mesh
        Blocks of a sample group, per axis of the grid.
    uses
        What a layer with weights may use the axes for.
    min_width
        An axis whose blocks would have fewer voxels than this goes to fewer ranks.

    Raises
    ------
    UsageError
        For a call that cannot be carried out in any way, or in more than `MOST`.
    """
    finder = _Finder(recording, given, tuple(mesh), tuple(uses), min_width)
    for index, call in enumerate(recording.calls):
        finder.add(index, call)
    finder.leave()
    return tuple(finder.found)


class _Finder:
    """Finds the ways of one call after the other."""

    def __init__(
        self,
        recording: Recording,
        given: Sequence[Sharding],
        mesh: tuple[int, ...],
        uses: tuple[Uses, ...],
        min_width: int,
    ) -> None:
        self._recording, self._given, self._mesh, self._uses = recording, tuple(given), mesh, uses
        self._plain = Preferences(min_width=min_width)
        self._users = recording.users()
        # A tensor that is written into keeps its number: who made it last counts.
        self._made = {value.number: (_GIVEN, place) for place, value in enumerate(recording.given)}
        self.found: list[CallWays] = []

    def add(self, index: int, call: Call) -> None:
        """Find the ways of a call."""
        sources = tuple(self._made[value.number] for value in call.taken)
        behind = layer_behind(self._recording.calls, self._users, index) if call.function in WEIGHTED else None
        number = met_later(self._recording.calls, self._users, index, self._made)
        meets = None if number is None else self._made[number]
        ways = dict[tuple[object, ...], dict[Sharding | None, Way]]()
        for cuts in self._combined(sources if meets is None else (*sources, meets)):
            taken, beside = cuts[: len(sources)], None if meets is None else cuts[-1]
            for way in self._ways(call, taken, beside, has_next=behind is not None):
                ways.setdefault((way.taken, way.uses, way.behind), {}).setdefault(beside, way)
        kept = [way for alike in ways.values() for way in _told_apart(alike)]
        self._keep(CallWays(call, call.taken, sources, tuple(kept), behind, meets), call.where)
        for place, value in enumerate(call.made):
            self._made[value.number] = index, place

    def leave(self) -> None:
        """Find what brings the results to the cuts in which they leave the network without a plan."""
        plan = plan_forward(self._recording, self._given, min_width=self._plain.min_width, gather_limit=sys.maxsize)
        plain = {value.number: cut for value, cut in zip(self._recording.given, self._given, strict=True)}
        for call, step in plan.sequence:
            plain |= {value.number: cut for value, cut in zip(call.made, step.results, strict=True)}
        axes = frozenset[int]().union(*(cut.axes() for cut in self._given))
        results = [each for each in leaves(self._recording.result) if isinstance(each, Value)]
        wanted = [returned(plain.get(value.number, Sharding.whole(value.shape)), axes) for value in results]
        sources = tuple(self._made[value.number] for value in results)
        ways = [
            Way(taken, tuple(_move(*pair) for pair in zip(taken, wanted, strict=True)), None, ())
            for taken in self._combined(sources)
        ]
        self._keep(CallWays(None, tuple(results), sources, tuple(ways)), "the network's results")

    def _keep(self, found: CallWays, where: str) -> None:
        if not 0 < len(found.ways) <= MOST:
            raise UsageError(
                f"a choice for every layer, at {where}",
                found=f"{len(found.ways)} ways to carry it out",
                expected=f"1 to {MOST}",
                remedy="split over fewer axes of the grid, or plan it by hand",
            )
        self.found.append(found)

    def _combined(self, sources: Sequence[tuple[int, int]]) -> Iterator[tuple[Sharding, ...]]:
        """Yield the cuts that values may have together."""
        makers = sorted({index for index, _ in sources})
        seen = dict[tuple[Sharding, ...], None]()
        for results in product(*map(self._results, makers)):
            by_maker = dict(zip(makers, results, strict=True))
            seen[tuple(by_maker[index][place] for index, place in sources)] = None
        return iter(seen)

    def _results(self, index: int) -> list[tuple[Sharding, ...]]:
        if index == _GIVEN:
            return [self._given]
        return list(dict.fromkeys(way.results for way in self.found[index].ways))

    def _ways(
        self, call: Call, taken: tuple[Sharding, ...], beside: Sharding | None, *, has_next: bool
    ) -> Iterator[Way]:
        is_layer = call.function in WEIGHTED
        for uses in self._uses if is_layer else (IN_SPACE,):
            for behind in self._behinds(uses) if is_layer and has_next else (None,):
                next_uses = tuple(Use.SPACE if each else Use.FILTER for each in behind or (True,) * len(self._mesh))
                split = LayerSplit(uses, self._mesh, next_uses, self._plain.min_width)
                ruling = self._ruling(call, taken, replace(self._plain, cut=beside, split=split))
                if ruling is None:
                    break
                moves = tuple(_move(*pair) for pair in zip(taken, ruling.inputs, strict=True))
                yield Way(taken, moves, ruling.action, ruling.results, uses, behind, beside)

    def _behinds(self, uses: Uses) -> Iterator[IsSpace | None]:
        """Yield what the next layer may use axes for, as far as what a layer gives depends on it."""
        axes = [axis for axis, use in enumerate(uses) if use is Use.CHANNEL and self._mesh[axis] > 1]
        if not axes:
            yield None
            return
        for flags in product((True, False), repeat=len(axes)):
            along = dict(zip(axes, flags, strict=True))
            yield along.get(0, True), along.get(1, True), along.get(2, True)

    def _ruling(self, call: Call, taken: tuple[Sharding, ...], wishes: Preferences) -> Ruling | None:
        """Return what a call does as the planner has it; None where it cannot."""
        is_planned = call.function in WEIGHTED and wishes.split is not None and not wishes.split.is_in_space
        is_whole = all(cut.is_whole for cut in taken)
        if is_whole and call.function is batch_norm_of_world:
            return None  # it counts every rank's samples once
        if is_whole and not is_planned:
            return whole(call, taken)
        try:
            return ruled(call, taken, wishes)
        except NoRule:
            return None if is_planned or call.written else whole(call, taken)


def _told_apart(alike: Mapping[Sharding | None, Way]) -> Iterator[Way]:
    """Yield ways that differ by what their results will meet; one of them where all give the same."""
    ways = list(alike.values())
    if all(way.results == ways[0].results for way in ways):
        yield replace(ways[0], beside=None)
    else:
        yield from ways


def _move(cut: Sharding, taken: Sharding) -> Move | None:
    return None if cut == taken else plan_move(cut, taken)
