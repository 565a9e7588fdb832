"""Moves: from any cut to any other of the same tensor, every rank gets its block, and gradients come back."""

from __future__ import annotations

from math import prod

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.forward.test_sharding import MESH, shardings
from voxload.engine import Loopback
from voxload.engine.forward.redistribution import moved, plan_move
from voxload.engine.forward.sharding import Factor, Sharding, dim_of
from voxload.grid import ProcessGrid


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Sharding, Sharding]:
    """Draw two cuts of one shape: the same factors at other bounds, some of them whole, or others altogether."""
    source = draw(shardings())
    if draw(st.booleans()):
        return source, draw(cut_anew(source.shape))
    axes = {factor.axis: factor for *_, factor in source.cuts() if factor.axis is not None}
    changes = {}
    for axis, factor in axes.items():
        inner = st.lists(st.integers(0, factor.extent), min_size=MESH[axis] - 1, max_size=MESH[axis] - 1)
        changes[axis] = draw(st.none() | inner.map(lambda each, f=factor: (0, *sorted(each), f.extent)))  # type: ignore[misc]
    target = source.recut(changes)
    if draw(st.booleans()):
        count = MESH[0]
        bounds = [tuple(place * extent // count for place in range(count + 1)) for extent in source.shape]
        chosen = draw(st.integers(0, len(bounds) - 1))
        dims = [dim_of([Factor(extent)]) for extent in source.shape]
        if source.shape[chosen] > 1:
            dims[chosen] = dim_of([Factor(source.shape[chosen], 0, bounds[chosen])])
        target = Sharding(tuple(dims))
    return source, target


@st.composite
def cut_anew(draw: st.DrawFn, shape: tuple[int, ...]) -> Sharding:
    """Draw any cut of a shape: axes of the grid along any dimensions, several along one, at any bounds."""
    dims: list[list[Factor]] = [[Factor(extent)] for extent in shape]
    for axis in draw(st.permutations(range(len(MESH)))):
        number = draw(st.none() | st.integers(0, len(shape) - 1))
        if number is None:
            continue
        *outer, inner = dims[number]
        pieces = draw(st.sampled_from([one for one in range(1, inner.extent + 1) if inner.extent % one == 0]))
        bounds = draw(st.lists(st.integers(0, pieces), min_size=MESH[axis] - 1, max_size=MESH[axis] - 1))
        cut = Factor(pieces, axis, (0, *sorted(bounds), pieces))
        dims[number] = [*outer, cut, Factor(inner.extent // pieces)]
    return Sharding(tuple(map(dim_of, dims)))


@settings(max_examples=50)
@given(cuts())
def test_any_cut_is_reached_from_any_other(pair: tuple[Sharding, Sharding]) -> None:
    """Forward as numpy slices, backward as the sum of what every rank pulled at."""
    source, target = pair
    whole = torch.arange(float(prod(source.shape)), dtype=torch.float64).reshape(source.shape)
    pull = torch.rand_like(whole)
    world = Loopback(ProcessGrid(MESH, prod(MESH)))
    move = plan_move(source, target)
    leaves = [source.block(whole, world.grid.coords_of(rank)).clone().requires_grad_() for rank in range(prod(MESH))]

    def work(rank: int) -> torch.Tensor:
        coords = world.grid.coords_of(rank)
        found = moved(leaves[rank], move, coords, world.rank(rank))
        (found * target.block(pull, coords)).sum().backward()
        return found.detach()

    results = world.run(work)
    numbers = torch.arange(whole.numel()).reshape(whole.shape)
    pulled, into = torch.zeros_like(whole).flatten(), torch.zeros_like(whole).flatten()
    for rank, found in enumerate(results):
        coords = world.grid.coords_of(rank)
        assert torch.equal(found, target.block(whole, coords))
        pulled.index_add_(0, target.block(numbers, coords).flatten(), target.block(pull, coords).flatten())
        grad = leaves[rank].grad
        assert grad is not None
        into.index_add_(0, source.block(numbers, coords).flatten(), grad.flatten())
    torch.testing.assert_close(into, pulled)
