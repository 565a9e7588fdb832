"""The published heuristic: the cheapest ways along the longest path, then along those that branch off it.

Dryden et al., Improving Strong-Scaling of CNN Training by Exploiting Finer-Grained Parallelism, IPDPS 2019. It is the
baseline of `optimum`, which it equals on networks without branches.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np

from voxload.plan.search.choices import Choices, Costs, Edge
from voxload.plan.search.optimum import Chosen


def longest_path_first(choices: Choices) -> Chosen:
    """Return a choice for layers whose edges go from lower numbers to higher ones; `alike` is not looked at."""
    chosen: dict[int, int] = {}
    while len(chosen) < len(choices.costs):
        path = _longest(choices, set(chosen))
        chosen |= _cheapest(choices, path, chosen)
    ways = tuple(chosen[number] for number in range(len(choices.costs)))
    return Chosen(ways, choices.total(ways))


def _longest(choices: Choices, done: set[int]) -> list[int]:
    """Return the longest path of layers that are not chosen for yet."""
    before: dict[int, int | None] = {}
    length: dict[int, int] = {}
    into = defaultdict[int, list[int]](list)
    for edge in choices.edges:
        into[edge.target].append(edge.source)
    for number in range(len(choices.costs)):
        if number in done:
            continue
        sources = [each for each in into[number] if each in length]
        before[number] = max(sources, key=length.__getitem__, default=None)
        length[number] = 1 + max((length[each] for each in sources), default=0)
    last: int | None = max(length, key=length.__getitem__)
    path: list[int] = []
    while last is not None:
        path.append(last)
        last = before[last]
    return path[::-1]


def _cheapest(choices: Choices, path: list[int], chosen: dict[int, int]) -> dict[int, int]:
    """Return the cheapest ways along a path, beside layers that were chosen for already (shortest path)."""
    costs: Costs = _own(choices, path[0], chosen)
    choice: list[np.ndarray[tuple[int, ...], np.dtype[np.intp]]] = []
    for one, other in pairwise(path):
        moves = sum(_between(edge, one) for edge in choices.edges if {edge.source, edge.target} == {one, other})
        steps = costs[:, None] + moves
        choice.append(steps.argmin(0))
        costs = steps.min(0) + _own(choices, other, chosen)
    ways = [int(costs.argmin())]
    for best in reversed(choice):
        ways.append(int(best[ways[-1]]))
    return dict(zip(path, reversed(ways), strict=True))


def _own(choices: Choices, number: int, chosen: dict[int, int]) -> Costs:
    """Return the costs of a layer's ways, with what moves to and from layers that were chosen for."""
    costs = choices.costs[number].copy()
    for edge in choices.edges:
        ends = {edge.source, edge.target}
        other = next(iter(ends - {number})) if number in ends else None
        if other in chosen:
            costs += _between(edge, number)[:, chosen[other]]
    return costs


def _between(edge: Edge, first: int) -> Costs:
    """Return the costs of an edge with a layer's ways first."""
    return edge.costs if edge.source == first else edge.costs.T
