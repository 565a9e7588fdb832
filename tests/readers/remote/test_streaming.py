"""Streaming: whole cache lines written past the caches, wherever a box consists of them, and nothing beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from voxload.geometry import Box
from voxload.readers.pasting import kernels, pasteplan
from voxload.readers.pasting.kernels import LINE
from voxload.readers.pasting.pasteplan import ChunkShape, Wanted, plan_parts


def _frame(shape: tuple[int, ...], dtype: np.dtype[Any], offset: int) -> npt.NDArray[Any]:
    """Return an array of ones that begins `offset` bytes behind a line."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + 2 * LINE, np.uint8)
    start = -memory.ctypes.data % LINE + offset
    frame: npt.NDArray[Any] = memory[start : start + size].view(dtype).reshape(shape)
    frame[...] = 1
    return frame


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_pasted_part_is_what_numpy_assigns(monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    """Any part of a chunk at any place of an array, aligned or not, is what numpy writes; all else is left."""
    monkeypatch.setattr(pasteplan, "_STREAMED_BYTES", 0)
    dtype = np.dtype(data.draw(st.sampled_from(["u1", "<i2", "<f4", "<f8"])))
    per_line = LINE // dtype.itemsize
    width = st.sampled_from([per_line, 2 * per_line, 3 * per_line, 1, per_line - 1, per_line + 1])
    first = st.sampled_from([0, per_line, 1])
    chunk_shape = (*data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4))), 4 * per_line)
    target = _frame(
        (6, 6, data.draw(st.sampled_from([6, 7])) * per_line), dtype, data.draw(st.sampled_from([0, 8, 16]))
    )
    lengths = (chunk_shape[0], data.draw(st.integers(1, chunk_shape[1])), data.draw(width))
    starts = (0, chunk_shape[1] - lengths[1], data.draw(st.sampled_from([0, 1])))
    places = (data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2)), data.draw(first))
    chunk = np.random.default_rng(0).integers(0, 100, chunk_shape).astype(dtype)
    expected = target.copy()
    expected[tuple(slice(a, a + n) for a, n in zip(places, lengths, strict=True))] = chunk[
        tuple(slice(a, a + n) for a, n in zip(starts, lengths, strict=True))
    ]
    box = Box((0, 0, 0), lengths).shift(starts)
    view = target[tuple(slice(a, a + n) for a, n in zip(places, lengths, strict=True))]
    plan = plan_parts(ChunkShape.of(chunk_shape, dtype), [Wanted(box, view)])
    kernels.paste(
        chunk.reshape(-1).view(np.uint8), plan.table, (0, 1), dtype.itemsize, is_shuffled=False, is_swapped=False
    )
    assert np.array_equal(target, expected)


@pytest.mark.parametrize(("offset", "row", "is_streamed"), [(0, 4, True), (8, 4, False), (0, 4.5, False)])
def test_only_whole_lines_are_streamed(offset: int, row: float, *, is_streamed: bool) -> None:
    """A large array is streamed when it begins with a line and its rows are whole ones: parts of lines are slower."""
    dtype = np.dtype("<i2")
    shape = (2**16, 1, int(row * LINE // dtype.itemsize))
    target = _frame(shape, dtype, offset)
    assert target.nbytes >= pasteplan._STREAMED_BYTES
    plan = plan_parts(ChunkShape.of((2**15, 1, LINE), dtype), [Wanted(Box.whole(shape), target)])
    manners = set(plan.table[:, kernels.MANNER].tolist())
    assert (kernels.BY_LINE in manners) == is_streamed
    assert kernels.BY_ELEMENT not in manners
