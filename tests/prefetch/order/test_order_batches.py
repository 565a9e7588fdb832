"""Batches as arrays: cut as torch cuts, packed and put together without loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler

from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.loader.sampler import GroupSampler
from voxload.prefetch.order.batches import Batching, assemble, is_beginning, materialise, pack
from voxload.prefetch.order.replays import shuffled_orders


def _unpacked(packed: Any) -> list[list[int]]:
    return [[index for index in step if index >= 0] for step in packed.tolist()]


@given(count=st.integers(0, 30), rows=st.integers(1, 3), batch=st.integers(1, 8), drop_last=st.booleans())
def test_cuts_are_torchs(count: int, rows: int, batch: int, drop_last: bool) -> None:
    """Every row is cut as torch's BatchSampler cuts it."""
    indices = np.arange(rows * count).reshape(rows, count)
    cut = Batching(batch, drop_last).of(indices)
    assert cut.flags.c_contiguous
    assert [_unpacked(row) for row in cut] == [list(BatchSampler(row, batch, drop_last)) for row in indices.tolist()]


@given(groups=st.lists(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=5), min_size=1))
def test_packed_and_assembled_batches_are_all_there(groups: list[list[list[int]]]) -> None:
    """Groups of unequal length and batches of unequal length come back as they were."""
    order = assemble(3, [pack(batches, 10) for batches in groups])
    assert order.epoch == 3
    assert order.steps == max(map(len, groups))
    assert [[step for step in _unpacked(row) if step] for row in order.samples] == groups


def test_indices_are_those_of_the_data_set() -> None:
    """Negative indices count from the end; what is no index of the data set is refused, and so is no group."""
    assert pack(cast("Any", [[-1, np.int64(0)], [torch.tensor(3)]]), 10).tolist() == [[9, 0], [3, -1]]
    with pytest.raises(UsageError, match="sample 10 of a data set of 10"):
        pack([[0, 10]], 10)
    with pytest.raises(UsageError, match="sample -11"):
        pack([[-11]], 10)
    with pytest.raises(UsageError, match="as integers"):
        pack(cast("Any", [[0.5]]), 10)
    with pytest.raises(UsageError, match="no group"):
        assemble(0, [])


@given(whole=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=5), data=st.data())
def test_beginnings(whole: list[list[int]], data: st.DataObject) -> None:
    """A beginning is one however it is padded, and nothing else is."""
    count = data.draw(st.integers(0, len(whole)))
    padded = np.pad(pack(whole, 10), ((0, 0), (0, 2)), constant_values=-1)
    assert is_beginning(pack(whole[:count], 10), padded)
    assert is_beginning(padded[:count], pack(whole, 10))
    assert not is_beginning(pack([*whole, [1]], 10), padded)
    if count:
        changed = [*whole[: count - 1], [*whole[count - 1], 4]]
        assert not is_beginning(pack(changed, 10), padded)
        assert not is_beginning(padded[:count], pack([*changed, *whole[count:]], 10))


def test_an_error_of_the_sampler_is_raised_at_its_place() -> None:
    """What was drawn before it is delivered first; nothing is drawn behind the bound."""

    def failing() -> Iterator[list[int]]:
        yield [1]
        yield [2]
        raise KeyError("third")

    drawn, stream = materialise(failing(), 5)
    assert drawn == [(1,), (2,)]
    assert [next(stream), next(stream)] == [(1,), (2,)]
    with pytest.raises(KeyError, match="third"):
        next(stream)
    drawn, stream = materialise(failing(), 2)
    assert [next(stream), next(stream)] == drawn
    with pytest.raises(KeyError, match="third"):
        next(stream)
    drawn, stream = materialise(iter([[1], [2]]), 5)
    assert list(stream) == drawn == [(1,), (2,)]


@given(
    samples=st.integers(1, 60),
    groups=st.integers(1, 7),
    batch=st.integers(1, 6),
    seed=st.integers(0, 2**20),
    drop_last=st.booleans(),
)
def test_shuffled_orders_are_the_loaders(samples: int, groups: int, batch: int, seed: int, drop_last: bool) -> None:
    """A simulation's orders are those of GroupSampler and BatchSampler, rank by rank and epoch by epoch."""
    orders = shuffled_orders(samples, groups, batch=batch, seed=seed, epochs=3, drop_last=drop_last)
    assert [order.epoch for order in orders] == [0, 1, 2]
    for group in range(groups):
        grid = ProcessGrid(world_size=groups, rank=group)
        sampler = GroupSampler(range(samples), grid, shuffle=True, seed=seed, drop_last=drop_last)
        for order in orders:
            assert _unpacked(order.samples[group]) == list(BatchSampler(sampler, batch, drop_last))
