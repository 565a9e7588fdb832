"""The cheapest choice, beside all there are, on networks of many kinds."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.errors import UsageError
from voxload.plan.search.choices import Choices, Edge
from voxload.plan.search.longest_path import longest_path_first
from voxload.plan.search.optimum import optimum


def random_choices(seed: int, *, most: int = 7, ways: int = 3) -> Choices:
    """Return a network of up to `most` layers: any edges from lower to higher numbers, some layers alike."""
    drawn = random.Random(seed)
    count = drawn.randint(1, most)
    numbers = [drawn.randint(1, ways) for _ in range(count)]
    alike = []
    if count > 2 and drawn.random() < 0.4:
        group = tuple(drawn.sample(range(count), drawn.randint(2, min(3, count))))
        for number in group:
            numbers[number] = numbers[group[0]]
        alike = [group]

    def costs(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        values = [float("inf") if drawn.random() < 0.1 else drawn.randint(0, 20) for _ in range(int(np.prod(shape)))]
        return np.array(values, dtype=np.float64).reshape(shape)

    edges = list[Edge]()
    for one, other in itertools.combinations(range(count), 2):
        between = range(drawn.choice([0, 0, 1, 1, 2]))
        edges += [Edge(one, other, costs(numbers[one], numbers[other])) for _ in between]
    return Choices(tuple(costs(each) for each in numbers), tuple(edges), tuple(alike))


def brute_force(choices: Choices) -> float:
    """Return what the cheapest of all choices costs."""
    return min(map(choices.total, itertools.product(*(range(len(costs)) for costs in choices.costs))))


def test_it_is_the_cheapest_of_all() -> None:
    """Of 200 random networks, branches, double edges, layers that are alike and impossible ways included."""
    possible = 0
    for seed in range(200):
        choices = random_choices(seed)
        cheapest = brute_force(choices)
        if cheapest == float("inf"):
            with pytest.raises(UsageError, match="no way of all layers"):
                optimum(choices)
            continue
        possible += 1
        found = optimum(choices)
        assert choices.total(found.ways) == found.cost == cheapest, seed
        assert optimum(choices) == found
    assert possible > 100


@settings(max_examples=100)
@given(st.integers(0, 10**6))
def test_the_heuristic_is_no_better_and_on_chains_as_good(seed: int) -> None:
    """What was published: exact without branches, and dearer with some."""
    drawn = random.Random(seed)
    numbers = [drawn.randint(1, 4) for _ in range(drawn.randint(1, 8))]
    costs = tuple(np.array([float(drawn.randint(0, 20)) for _ in range(each)]) for each in numbers)
    chain = [
        Edge(place, place + 1, np.array([[float(drawn.randint(0, 20)) for _ in range(after)] for _ in range(before)]))
        for place, (before, after) in enumerate(itertools.pairwise(numbers))
    ]
    whole = Choices(costs, tuple(chain))
    assert longest_path_first(whole).cost == optimum(whole).cost
    if len(numbers) > 2:
        skip = Edge(
            0, len(numbers) - 1, np.array([[5.0] * numbers[-1]] * numbers[0]) * np.arange(1, numbers[0] + 1)[:, None]
        )
        branched = Choices(costs, (*chain, skip))
        assert longest_path_first(branched).cost >= optimum(branched).cost == brute_force(branched)


def test_a_u_net_takes_linear_time() -> None:
    """Hundreds of layers with a skip for each: no table has more than three layers."""
    depth, ways = 200, 12
    drawn = np.random.default_rng(1)
    chain = [Edge(place, place + 1, drawn.random((ways, ways))) for place in range(2 * depth - 1)]
    skips = [Edge(place, 2 * depth - 1 - place, drawn.random((ways, ways))) for place in range(depth - 1)]
    choices = Choices(tuple(drawn.random(ways) for _ in range(2 * depth)), (*chain, *skips))
    found = optimum(choices)
    assert choices.total(found.ways) == pytest.approx(found.cost)
    assert found.cost < longest_path_first(choices).cost


def test_what_is_too_entangled_or_makes_no_sense_is_refused() -> None:
    """By name, before memory is filled."""
    ways, count = 40, 8
    costs = tuple(np.zeros(ways) for _ in range(count))
    edges = tuple(Edge(one, other, np.zeros((ways, ways))) for one, other in itertools.combinations(range(count), 2))
    with pytest.raises(UsageError, match="entangled"):
        optimum(Choices(costs, edges))
    with pytest.raises(UsageError, match="costs of layer 0"):
        Choices((np.zeros(0),))
    with pytest.raises(UsageError, match=r"edge \(0, 2\)"):
        Choices((np.zeros(1), np.zeros(1)), (Edge(0, 2, np.zeros((1, 1))),))
    with pytest.raises(UsageError, match=r"costs of edge \(0, 1\): found shape \(2, 1\)"):
        Choices((np.zeros(1), np.zeros(1)), (Edge(0, 1, np.zeros((2, 1))),))
    with pytest.raises(UsageError, match="as many of each"):
        Choices((np.zeros(1), np.zeros(2)), alike=((0, 1),))
    with pytest.raises(UsageError, match="no numbers"):
        Choices((np.array([np.nan]),))
