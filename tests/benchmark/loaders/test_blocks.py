"""Parts: what is read is what is wanted, once, and no chunk twice."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.reader import expected_block
from voxload.benchmark.loaders.blocks import parts
from voxload.geometry import Boundary, Box

extents = st.tuples(*[st.integers(1, 9)] * 3)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], Box]:
    """Draw a volume, and a box that may leave it by more than its extent."""
    shape = draw(extents)
    start = tuple(draw(st.integers(-extent - 2, extent)) for extent in shape)
    size = tuple(draw(st.integers(1, 2 * extent + 2)) for extent in shape)
    return shape, Box((0, 0, 0), size).shift(start)


@given(case=boxes(), chunks=extents, boundary=st.sampled_from(Boundary))
def test_parts_make_the_box_and_share_no_chunk(
    case: tuple[tuple[int, ...], Box], chunks: tuple[int, ...], boundary: Boundary
) -> None:
    """Pasting the parts gives what numpy gives by indices; each chunk is touched by one part at most."""
    shape, box = case
    whole = np.arange(1, np.prod(shape) + 1).reshape(1, *shape)
    out = np.zeros((1, *box.shape), whole.dtype)
    seen = np.zeros([-(-extent // chunk) for extent, chunk in zip(shape, chunks, strict=True)], int)
    for part in parts(box, shape, boundary, chunks=chunks):
        held = whole[0][part.box.slices]
        assert held.shape == part.box.shape
        for paste in part.pastes:
            out[0][paste.target.slices] = held[paste.source.slices]
        touched = zip(part.box.start, part.box.stop, chunks, strict=True)
        seen[tuple(slice(lo // chunk, -(-hi // chunk)) for lo, hi, chunk in touched)] += 1
        assert part.is_direct == (len(part.pastes) == 1 and part.pastes[0].target.shape == part.box.shape)
    np.testing.assert_array_equal(out, expected_block(whole, box, boundary))
    assert seen.max() <= 1
