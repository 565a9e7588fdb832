"""Optimum: the cheapest choice for all layers at once, exactly.

Layers are taken out one after the other, those that have the fewest ways together with their neighbours first, and what
is left costs as much as the best way of what was taken out (bucket elimination; Dechter, Artificial Intelligence 113,
1999). Of a chain that is the shortest path of Dryden et al. (IPDPS 2019); of series-parallel graphs, such as U-Nets and
networks of residual blocks, there is always a layer with at most two neighbours, so that the time is linear in the
layers. It is exact for any graph, at a cost that grows with how entangled that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from voxload.errors import UsageError
from voxload.plan.search.choices import Choices, Costs

LARGEST = 2**26
"""Entries of a table, at most: of graphs that are more entangled nothing is found here."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A way for each layer."""

    ways: tuple[int, ...]
    cost: float


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Costs by the ways of some layers, ascending."""

    layers: tuple[int, ...]
    costs: Costs


def optimum(choices: Choices) -> Chosen:
    """Return the cheapest choice; of several the one that an order of layers and ways decides, always the same.

    Raises
    ------
    UsageError
        Where no choice is possible, or the network is so entangled that a table would have more than `LARGEST` entries.
    """
    first = _representatives(choices)
    tables = list(_tables(choices, first))
    ways = {number: len(choices.costs[number]) for number in set(first)}
    taken: list[tuple[int, tuple[int, ...], npt.NDArray[np.intp]]] = []
    left = set(ways)
    while left:
        number = min(left, key=lambda each: (_entries(each, tables, ways), each))
        left.remove(number)
        neighbours = tuple(sorted(_neighbours(number, tables)))
        meeting = [each for each in tables if number in each.layers]
        tables = [each for each in tables if number not in each.layers]
        together = _added(meeting, (*neighbours, number), ways)
        taken.append((number, neighbours, together.argmin(-1)))
        tables.append(_Table(neighbours, together.min(-1)))
    cost = float(sum(each.costs.sum() for each in tables))
    if not np.isfinite(cost):
        raise UsageError(
            "plan", found="no way of all layers that is possible", expected="one", remedy="allow more ways"
        )
    chosen: dict[int, int] = {}
    for number, neighbours, best in reversed(taken):
        chosen[number] = int(best[tuple(chosen[each] for each in neighbours)])
    return Chosen(tuple(chosen[each] for each in first), cost)


def _representatives(choices: Choices) -> list[int]:
    """Return for each layer the first of those that it has to be like."""
    first = list(range(len(choices.costs)))

    def root(number: int) -> int:
        while first[number] != number:
            number = first[number]
        return number

    for group in choices.alike:
        for number in group[1:]:
            one, other = sorted((root(group[0]), root(number)))
            first[other] = one
    return [root(number) for number in range(len(first))]


def _tables(choices: Choices, first: Sequence[int]) -> Iterable[_Table]:
    """Yield the costs of layers and edges, layers that are to be alike as one."""
    for number, costs in enumerate(choices.costs):
        yield _Table((first[number],), costs)
    for edge in choices.edges:
        one, other = first[edge.source], first[edge.target]
        if one == other:
            yield _Table((one,), np.diagonal(edge.costs))
        elif one < other:
            yield _Table((one, other), edge.costs)
        else:
            yield _Table((other, one), edge.costs.T)


def _neighbours(number: int, tables: Sequence[_Table]) -> set[int]:
    return {each for table in tables if number in table.layers for each in table.layers} - {number}


def _entries(number: int, tables: Sequence[_Table], ways: dict[int, int]) -> int:
    """Return how many entries the table has by which a layer is taken out."""
    return prod(ways[each] for each in _neighbours(number, tables)) * ways[number]


def _added(tables: Sequence[_Table], layers: tuple[int, ...], ways: dict[int, int]) -> Costs:
    """Return the sum of tables as one, by the ways of `layers` in this order."""
    shape = tuple(ways[each] for each in layers)
    if int(np.prod(shape, dtype=object)) > LARGEST:
        raise UsageError(
            "plan",
            found=f"layers that are entangled with {len(layers) - 1} others at once, {shape} ways",
            expected=f"tables of at most {LARGEST:,} entries",
            remedy="allow fewer ways of each layer",
        )
    total = np.zeros(shape)
    for table in tables:
        places = [layers.index(each) for each in table.layers]
        order = np.argsort(places)
        spread = [1] * len(layers)
        for place, each in zip(places, table.layers, strict=True):
            spread[place] = ways[each]
        total = total + table.costs.transpose(order).reshape(spread)
    return total
