"""Dealing: the rest of an epoch is torch's own division of it, for any number of groups."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler, TensorDataset

from voxload.loader.order.orders import SHUFFLED, group_share, whole_order


@given(
    samples=st.integers(1, 30),
    parts=st.integers(1, 9),
    steps=st.integers(0, 30),
    drop_last=st.booleans(),
    seed=st.integers(0, 99),
)
def test_going_on_equals_going_through(samples: int, parts: int, steps: int, drop_last: bool, seed: int) -> None:
    """With as many groups, what is left after some steps is what torch's sampler would draw after them."""
    data = TensorDataset(torch.arange(samples))
    order = whole_order(SHUFFLED, {"seed": seed, "draws": 0}, samples)
    for part in range(parts):
        theirs: list[int] = list(DistributedSampler(data, parts, part, seed=seed, drop_last=drop_last))
        done = min(steps, len(theirs))
        ours = group_share(order, min(done * parts, samples), part=part, parts=parts, drop_last=drop_last)
        assert list(ours) == theirs[done:]


@given(samples=st.integers(1, 30), position=st.integers(0, 30), parts=st.integers(1, 9), drop_last=st.booleans())
def test_every_sample_that_is_left_is_dealt_once(samples: int, position: int, parts: int, drop_last: bool) -> None:
    """Whatever the number of groups, the rest is dealt out evenly: padded, or cut, by less than one round."""
    position = min(position, samples)
    groups = [
        group_share(range(samples), position, part=part, parts=parts, drop_last=drop_last) for part in range(parts)
    ]
    assert len({len(group) for group in groups}) == 1
    found = [index for step in zip(*groups, strict=True) for index in step]
    left = list(range(position, samples))
    assert found[: len(left)] == left[: len(found)]
    assert -parts < len(found) - len(left) <= 0 if drop_last else 0 <= len(found) - len(left) < parts
