"""Shardings: blocks of any cut make up the whole, and a reshape of blocks is a block of the reshaped whole."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.forward.rules.rearranging import NoRegrouping, regroup
from voxload.engine.forward.sharding import Factor, Sharding

MESH = (2, 3, 2)
COORDS = list(itertools.product(*map(range, MESH)))


@st.composite
def shardings(draw: st.DrawFn) -> Sharding:
    """Draw dimensions of some factors each, of which those of three grid axes are cut, at any bounds."""
    left: list[int] = draw(st.permutations(range(len(MESH))))
    dims = []
    for _ in range(draw(st.integers(1, 4))):
        factors = []
        for _ in range(draw(st.integers(0, 2))):
            extent = draw(st.sampled_from([1, 2, 3, 4, 6, 8]))
            is_cut = draw(st.booleans())
            if left and is_cut:
                axis = left.pop()
                inner = sorted(draw(st.integers(0, extent)) for _ in range(MESH[axis] - 1))
                factors.append(Factor(extent, axis, (0, *inner, extent)))
            else:
                factors.append(Factor(extent))
        dims.append(factors)
    return Sharding(tuple(Sharding(()).with_dim(0, factors).dims[0] for factors in dims))


def _numbered(sharding: Sharding) -> Any:
    return np.arange(prod(sharding.shape)).reshape(sharding.shape)


@given(shardings())
def test_blocks_make_up_the_whole(sharding: Sharding) -> None:
    """Every element is in as many blocks as there are ranks along the axes that do not cut it."""
    whole = _numbered(sharding)
    axes = {factor.axis for *_, factor in sharding.cuts()}
    times = prod(count for axis, count in enumerate(MESH) if axis not in axes)
    blocks = [sharding.block(whole, coords) for coords in COORDS]
    for coords, block in zip(COORDS, blocks, strict=True):
        assert block.shape == sharding.block_shape(coords)
    counts = np.bincount(np.concatenate([block.ravel() for block in blocks]), minlength=whole.size)
    assert (counts == times).all()


@given(shardings(), st.data())
def test_a_reshape_of_blocks_is_a_block_of_the_reshape(sharding: Sharding, data: st.DataObject) -> None:
    """Where there is one; bounds are moved before, and only where they have to be."""
    whole = _numbered(sharding)
    assume(whole.size > 1)
    shape: list[int] = []
    left = whole.size
    while left > 1 and len(shape) < 5:
        extent = data.draw(st.sampled_from([one for one in range(1, left + 1) if left % one == 0]))
        shape.append(extent)
        left //= extent
    shape.append(left)
    try:
        found = regroup(sharding, shape)
    except NoRegrouping:
        assert not sharding.is_whole
        return
    assert found.result.shape == tuple(shape)
    assert found.source.shape == sharding.shape
    for coords in COORDS:
        block = found.source.block(whole, coords)
        np.testing.assert_array_equal(
            block.reshape(found.result.block_shape(coords)), found.result.block(whole.reshape(shape), coords)
        )


@given(shardings())
def test_what_has_its_shape_already_stays(sharding: Sharding) -> None:
    """No bound moves."""
    found = regroup(sharding, sharding.shape)
    assert found.source.block_shape((1, 2, 1)) == sharding.block_shape((1, 2, 1))
    assert found.source == sharding


def test_volumes_tokens_and_windows() -> None:
    """Of a volume in eight blocks: flattened to tokens, parted into windows, and with the channels behind."""
    blocks = Blocks(((0, 4, 8), (0, 4, 8), (0, 4, 8)))
    volume = Sharding.of_volume(blocks, leading=(2, 5))
    tokens = regroup(volume, (2, 5, 512))
    assert tokens.source == volume
    assert str(tokens.result) == "(2, 5, 8 cut at 0,4,8 x 8 cut at 0,4,8 x 8 cut at 0,4,8)"
    windows = regroup(volume, (2, 5, 4, 2, 4, 2, 4, 2)).result
    assert windows.block_shape((0, 1, 0)) == (2, 5, 2, 2, 2, 2, 2, 2)
    assert regroup(tokens.result, (2, 5, 8, 8, 8)).result == volume
    assert volume.ordered((0, 2, 3, 4, 1)).block_shape((0, 0, 0)) == (2, 4, 4, 4, 5)
    alone = Sharding.of_volume(Blocks(((0, 8), (0, 8), (0, 8))), leading=(1, 1))
    assert alone.is_whole
