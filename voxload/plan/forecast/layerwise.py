"""layerwise: what each layer of a network had best use the axes of a grid for, redistribution priced.

The engine carries out every call of the network in every way that its rules allow, on tensors without data, and each is
priced as steps are. Which ways go together is a graph of calls, whose best choice `voxload.plan.search` finds exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from voxload.engine.ways.network import IN_SPACE, CallWays, NetworkWays, Use, Uses, Way
from voxload.errors import UsageError
from voxload.plan.forecast.forecast import Oracle
from voxload.plan.forecast.setups import Setup
from voxload.plan.search.choices import Choices, Costs, Edge
from voxload.plan.search.optimum import optimum
from voxload.plan.trace.tracer import Tracer

_AXES = 3


@dataclass(frozen=True, slots=True)
class LayerChoice:
    """Uses of the grid's axes by all layers."""

    layers: dict[str, str]
    """By the paths of layers, as `voxload.engine.SplitPlan.of` takes them; those left out cut space."""
    seconds: float
    """Of all calls, forward and backward, as far as they depend on the choice."""


def candidates(spatial: Sequence[int]) -> list[Uses]:
    """Return what a layer may use the axes of a grid for: space, and along the last one or more that cut another thing.

    >>> found = candidates((2, 4, 1))
    >>> [",".join(use.value for use in uses) for uses in found[:3]]
    ['space,space,space', 'filter,filter,space', 'space,filter,space']
    >>> len(found)
    7
    """
    cut = [axis for axis, count in enumerate(spatial) if count > 1]
    found = [IN_SPACE]
    for use in (Use.FILTER, Use.CHANNEL, Use.WHOLE):
        for place in range(len(cut)):
            first, second, third = (use if axis in cut[place:] else Use.SPACE for axis in range(_AXES))
            found.append((first, second, third))
    return found


class LayerChooser:
    """Prices all ways of the calls of one training in one setup; used by one thread.

    Parameters
    ----------
    oracle
        Says what is trained, and what operations and messages take.
    setup
        Who has what.
    uses
        What layers may use the axes for; by default `candidates`.

    Raises
    ------
    UsageError
        When the network cannot be recorded, or its calls have too many ways.
    """

    def __init__(self, oracle: Oracle, setup: Setup, uses: Sequence[Uses] | None = None) -> None:
        training = oracle.training
        if training.autocast is not None:
            raise UsageError(
                "layers of a network under autocast",
                found=training.dtype,
                expected="float32 or tf32",
                remedy="choose for them without --amp, and give the choice to shard",
            )
        self._grid = setup.grid
        size = setup.samples, *training.sample
        wanted = candidates(setup.spatial) if uses is None else list(uses)
        self._ways = NetworkWays(training.network(), self._grid, size, uses=wanted)
        self._kernels, fabric = oracle.speeds(setup)
        time = oracle.forecast(setup).time
        meetings = sum(each.exchanged is not None for each in oracle.trace_of(setup).operations)
        self._waits = fabric.steady((time.forward + time.backward) / max(meetings, 1)).waits(self._grid)
        self._graph = _Graph(self.calls)
        self._costs = tuple(
            np.array([self._seconds(number, way) for way in call.ways]) for number, call in enumerate(self.calls)
        )

    @property
    def calls(self) -> tuple[CallWays, ...]:
        """The calls of the network."""
        return self._ways.calls

    def best(self) -> LayerChoice:
        """Return the choice that takes least."""
        return self._choice(self._costs)

    def uniform(self, uses: Uses) -> LayerChoice:
        """Return what it takes when all layers use the axes alike, those that cannot space.

        Raises UsageError where layers in space do not go with these.
        """
        return self._choice(
            tuple(
                np.where(_allowed(call, uses), seconds, np.inf)
                for call, seconds in zip(self.calls, self._costs, strict=True)
            )
        )

    def _choice(self, costs: Sequence[Costs]) -> LayerChoice:
        chosen = optimum(self._graph.choices(costs))
        layers = {}
        for call, number in zip(self.calls, chosen.ways, strict=False):
            way = call.ways[number]
            if call.is_layer and call.call is not None and way.uses != IN_SPACE:
                layers[call.call.path] = ",".join(use.value for use in way.uses)
        return LayerChoice(layers, chosen.cost)

    def _seconds(self, number: int, way: Way) -> float:
        nothing = nn.Identity()
        tracer = Tracer(nothing, nothing)
        self._ways.run(number, way, tracer)
        return sum(
            self._kernels.seconds(each) + self._waits.halos(each) + self._waits.sums(each) for each in tracer.operations
        )


class _Graph:
    """Which ways of calls go together.

    Beside the ways of calls, the cuts of what each gives are chosen for, and whether each layer cuts space: so ways
    meet those of others by few numbers, and what is not possible together has a cost that is infinite.
    """

    def __init__(self, calls: Sequence[CallWays]) -> None:
        self._free: list[Costs] = []
        self._edges: list[Edge] = []
        first = len(calls)
        cuts, spaces = dict[int, tuple[int, list[_Cuts]]](), dict[int, tuple[int, list[_Spaces]]]()

        def add(count: int) -> int:
            self._free.append(np.zeros(count))
            return first + len(self._free) - 1

        for number, call in enumerate(calls):
            given: list[_Cuts] = list(dict.fromkeys(way.results for way in call.ways))
            cuts[number] = add(len(given)), given
            self._join(number, [way.results for way in call.ways], *cuts[number])
            if call.is_layer:
                known = list(dict.fromkeys(map(_spaces, call.ways)))
                spaces[number] = add(len(known)), known
                self._join(number, list(map(_spaces, call.ways)), *spaces[number])
        paths = dict[str, int]()
        for number, call in enumerate(calls):
            for maker in dict.fromkeys(index for index, _ in call.sources if index >= 0):
                places = [(at, place) for at, (index, place) in enumerate(call.sources) if index == maker]
                node, given = cuts[maker]
                made: list[_Cuts] = [tuple(results[place] for _, place in places) for results in given]
                self._join(number, [tuple(way.taken[at] for at, _ in places) for way in call.ways], node, made)
            if call.meets is not None and call.meets[0] >= 0 and any(way.beside is not None for way in call.ways):
                node, given = cuts[call.meets[0]]
                met = [results[call.meets[1]] for results in given]
                suits = [[way.beside is None or way.beside == each for each in met] for way in call.ways]
                self._edges.append(Edge(number, node, np.where(suits, 0.0, np.inf)))
            if call.behind is not None and any(way.behind is not None for way in call.ways):
                node, known = spaces[call.behind]
                fits = [[_expects(way, each) for each in known] for way in call.ways]
                self._edges.append(Edge(number, node, np.where(fits, 0.0, np.inf)))
            if call.is_layer and call.call is not None:
                before = paths.setdefault(call.call.path, number)
                if before != number:  # a plan says it once for all calls of a layer
                    uses = [way.uses for way in call.ways]
                    alike = [[way.uses == each for each in uses] for way in calls[before].ways]
                    self._edges.append(Edge(before, number, np.where(alike, 0.0, np.inf)))

    def choices(self, costs: Sequence[Costs]) -> Choices:
        """Return what is to be chosen, by the costs of each call's ways."""
        return Choices((*costs, *self._free), tuple(self._edges))

    def _join(self, number: int, mine: Sequence[object], node: int, theirs: Sequence[object]) -> None:
        # Equal cuts are many: each is compared once.
        known = {each: np.array([each == other for other in theirs]) for each in dict.fromkeys(mine)}
        self._edges.append(Edge(number, node, np.where(np.stack([known[each] for each in mine]), 0.0, np.inf)))


_Cuts = tuple[object, ...]
_Spaces = tuple[bool, ...]


def _spaces(way: Way) -> _Spaces:
    return tuple(use is Use.SPACE for use in way.uses)


def _expects(way: Way, spaces: _Spaces) -> bool:
    """Tell whether a layer is carried out so where the next one cuts these axes of space."""
    axes = [axis for axis, use in enumerate(way.uses) if use is Use.CHANNEL]
    return way.behind is None or all(way.behind[axis] == spaces[axis] for axis in axes)


def _allowed(call: CallWays, uses: Uses) -> list[bool]:
    """Tell of each way of a call whether a layer uses the axes so, or in space where it cannot."""
    able = any(way.uses == uses for way in call.ways)
    return [not call.is_layer or way.uses == (uses if able else IN_SPACE) for way in call.ways]
