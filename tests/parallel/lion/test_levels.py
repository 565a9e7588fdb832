"""Levels: what is packed and summed is what arithmetic says, by the core and by torch alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from voxload.errors import UsageError
from voxload.parallel.lion.levels import UNIT, Combine, Levels

KINDS = [
    (Combine.MAJORITY, 1),
    *((Combine.LEVELS, bits) for bits in (1, 2, 4, 8)),
    *((Combine.MEAN, bits) for bits in (1, 2, 4, 8)),
]
NUMBERS = [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 1e-45, -1e-45, 3e38, -3e38, float("inf"), float("-inf"), 100.4, -7.6]


def _levels(numbers: Tensor, bits: int, *, odd: bool) -> np.ndarray[Any, Any]:
    """Return the levels of rows of numbers, by numpy."""
    rows = numbers.double().numpy()
    limit = max(2 ** (bits - 1) - 1, 1)
    if bits > 1:
        clipped: np.ndarray[Any, Any] = np.clip(np.rint(rows), -limit, limit).astype(np.int64)
        return clipped
    zeros = np.where(np.arange(rows.shape[1]) % 2 == int(odd), 1, -1)
    found: np.ndarray[Any, Any] = np.where(rows == 0, zeros, np.sign(rows)).astype(np.int64)
    return found


@given(
    st.data(),
    st.sampled_from(KINDS),
    st.integers(1, 9) | st.sampled_from([127, 128, 300]),
    st.integers(1, 3),
    st.integers(1, 5) | st.just(600),
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_what_comes_back_is_the_sum(
    data: st.DataObject, kind: tuple[Combine, int], groups: int, rows: int, units: int, odd: bool, dtype: torch.dtype
) -> None:
    """Of any number of groups, of any numbers; and no sum is ever too large for its place."""
    levels = Levels(*kind, groups)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    numbers = torch.randn(groups, rows, units * UNIT, generator=generator) * data.draw(st.sampled_from([1.0, 50.0]))
    if data.draw(st.booleans()):
        numbers[:] = 1e9  # all of them at the limit
    for value in data.draw(st.lists(st.sampled_from(NUMBERS), max_size=6)):
        numbers[data.draw(st.integers(0, groups - 1)), 0, data.draw(st.integers(0, units * UNIT - 1))] = value
    packed = []
    for each in numbers.to(dtype):
        found, is_none = levels.packed(each, odd=odd)
        assert (found.shape, found.dtype) == ((rows, units * UNIT * levels.bits // 8), torch.uint8)
        assert is_none.tolist() == [0]
        packed.append(found)
    came = [torch.stack([each[row] for each in packed]) for row in range(rows)]
    back = torch.stack([levels.summed(each) for each in came])
    for each, own in zip(came, back, strict=True):  # by torch's operations, as on a device
        assert torch.equal(levels.summed(each.t().contiguous().t()), own)
    assert back.shape == (rows, units * UNIT * levels.result_bits // 8)
    total = np.stack([_levels(each, levels.bits, odd=odd) for each in numbers]).sum(0)
    wanted = total / (groups * levels.limit) if levels.combine is Combine.MEAN else np.sign(total)
    for kind_of in (torch.float32, torch.float64):
        found = torch.full((rows, units * UNIT), torch.nan, dtype=kind_of)
        levels.unpack_into(back, found)
        np.testing.assert_array_equal(found.numpy(), wanted.astype(found.numpy().dtype))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("place", [0, 8, 5000, 16383])
def test_what_is_no_number_is_told(bits: int, dtype: torch.dtype, place: int) -> None:
    """Wherever it is."""
    numbers = torch.randn(1, 16384, dtype=dtype)
    levels = Levels(Combine.LEVELS, bits, 2)
    assert levels.packed(numbers, odd=True)[1].tolist() == [0]
    numbers[0, place] = torch.nan
    assert levels.packed(numbers, odd=True)[1].tolist() == [1]


@pytest.mark.parametrize(
    ("combine", "bits", "groups", "width"),
    [
        (Combine.MAJORITY, 1, 3, 1),
        (Combine.MAJORITY, 1, 4, 2),
        (Combine.LEVELS, 4, 1000, 2),
        (Combine.MEAN, 1, 1, 2),
        (Combine.MEAN, 1, 7, 4),
        (Combine.MEAN, 1, 8, 8),
        (Combine.MEAN, 8, 258, 16),
        (Combine.MEAN, 8, 259, 32),
    ],
)
def test_what_comes_back_is_as_wide_as_it_has_to_be(combine: Combine, bits: int, groups: int, width: int) -> None:
    """Of signs of an odd number of groups none is 0; means have room for every sum."""
    assert Levels(combine, bits, groups).result_bits == width


def test_other_widths_are_refused() -> None:
    """With those that there are."""
    with pytest.raises(UsageError, match=r"found 3, expected 1, 2, 4 or 8"):
        Levels(Combine.LEVELS, 3, 2)
    with pytest.raises(UsageError, match=r"combine='majority': found 4, expected 1"):
        Levels(Combine.MAJORITY, 4, 2)
    with pytest.raises(UsageError, match=r"9000000 sample groups"):
        Levels(Combine.MEAN, 8, 9_000_000)
