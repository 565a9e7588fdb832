"""Lookup: every value becomes what its table holds, in any layout, at any address."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import InternalError
from voxload.transforms.lookup import Lookup

Bits = npt.NDArray[Any]
LAYOUTS = ((0, 1, 2), (0, 2, 1), (1, 2, 0))
"""Which axis of (items, channels, voxels) lies where in memory: channels first, last, and items last."""


def _laid(shape: tuple[int, int, int], dtype: str, layout: tuple[int, int, int], shift: int) -> Bits:
    """Return an array of a layout, so many bytes behind an aligned address."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    flat = np.zeros(size + shift, np.uint8)[shift:].view(dtype)
    return flat.reshape([shape[axis] for axis in layout]).transpose(np.argsort(layout))


def _table(rows: int, stored: int, width: int, seed: int) -> Bits:
    """Return results of any bits, those of numbers that are none too."""
    drawn = np.random.default_rng(seed).integers(0, 256, (rows, width << 8 * stored), np.uint8)
    return drawn.view(f"u{width}")


@given(
    shape=st.tuples(
        st.integers(1, 2), st.integers(1, 5), st.sampled_from([0, 1, 3, 7, 8, 9, 511, 512, 513, 1024, 1300])
    ),
    sizes=st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2, 4, 8])),
    layouts=st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)),
    shifts=st.tuples(st.integers(0, 3), st.integers(0, 9)),
    is_shared=st.booleans(),
    cut=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_every_value_becomes_its_result(
    shape: tuple[int, int, int],
    sizes: tuple[int, int],
    layouts: tuple[tuple[int, int, int], tuple[int, int, int]],
    shifts: tuple[int, int],
    is_shared: bool,
    cut: float,
    seed: int,
) -> None:
    """All sizes, layouts and odd addresses; spans leave what is around them alone."""
    stored, width = sizes
    values = _laid(shape, f"u{stored}", layouts[0], shifts[0])
    values[...] = np.random.default_rng(seed).integers(0, 1 << 8 * stored, shape)
    table, out = (
        _table(1 if is_shared else shape[1], stored, width, seed),
        _laid(shape, f"u{width}", layouts[1], shifts[1]),
    )
    rows = np.broadcast_to(table, (shape[1], table.shape[1]))
    expected, split = rows[np.arange(shape[1])[:, None], values], int(cut * shape[2])
    found = Lookup(values, table, out)
    found.span(shape[0] - 1, split, shape[2])
    np.testing.assert_array_equal(out[-1, :, split:], expected[-1, :, split:])
    assert not out[-1, :, :split].any()
    assert not out[:-1].any()
    for item in range(shape[0]):
        found.span(item, 0, split)
        found.span(item, split, shape[2])
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("stored", [1, 2])
def test_the_table_is_used_to_its_ends(stored: int) -> None:
    """The lowest and the highest values have results of their own."""
    values = np.arange(1 << 8 * stored).astype(f"u{stored}").reshape(1, 1, -1)
    table, out = _table(1, stored, 4, 1), np.zeros(values.shape, np.uint32)
    Lookup(values, table, out).span(0, 0, values.shape[2])
    np.testing.assert_array_equal(out[0], table)


VALUES, TABLE, OUT = np.zeros((2, 3, 8), np.uint8), np.zeros((3, 256), np.uint32), np.zeros((2, 3, 8), np.uint32)
CONST = np.zeros((2, 3, 8), np.uint32)
CONST.setflags(write=False)
SAME = np.zeros((2, 3, 8), np.uint8)


@pytest.mark.parametrize(
    ("values", "table", "out"),
    [
        pytest.param(VALUES[0], TABLE, OUT[0], id="two axes"),
        pytest.param(VALUES.astype(np.uint32), TABLE, OUT, id="wide values"),
        pytest.param(VALUES.astype(np.int8), TABLE, OUT, id="signed values"),
        pytest.param(VALUES.astype(">u2"), np.zeros((3, 65536), np.uint32), OUT, id="other byte order"),
        pytest.param(VALUES.astype(np.uint16), TABLE, OUT, id="short table"),
        pytest.param(VALUES, TABLE[:2], OUT, id="a channel without table"),
        pytest.param(VALUES, TABLE[:, ::2], OUT, id="half a table"),
        pytest.param(VALUES, np.zeros((3, 512), np.uint32)[:, ::2], OUT, id="table with gaps"),
        pytest.param(VALUES, TABLE.astype(np.float32), OUT.astype(np.float32), id="results that are no bits"),
        pytest.param(VALUES, TABLE, OUT.astype(np.uint64), id="other results"),
        pytest.param(VALUES, TABLE, OUT[:, :, :7], id="too little room"),
        pytest.param(VALUES, TABLE, CONST, id="room that is read-only"),
        pytest.param(SAME, np.zeros((3, 256), np.uint8), SAME, id="results over values"),
    ],
)
def test_what_does_not_belong_together_is_refused(values: Bits, table: Bits, out: Bits) -> None:
    """Before anything is looked up: the kernel trusts its caller."""
    with pytest.raises(InternalError, match="table of results"):
        Lookup(values, table, out)


@pytest.mark.parametrize("span", [(-1, 0, 8), (2, 0, 8), (0, -1, 8), (0, 0, 9), (0, 5, 4), (0, 9, 9)])
def test_spans_stay_inside(span: tuple[int, int, int]) -> None:
    """A span of other items or voxels than there are is refused."""
    with pytest.raises(InternalError, match="span"):
        Lookup(VALUES, TABLE, np.zeros_like(OUT)).span(*span)
