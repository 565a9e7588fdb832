"""geometry: boxes, halos, boundaries and splits, against numpy."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload import geometry
from voxload.errors import UsageError
from voxload.geometry import Boundary, Box, Halo, chunks_touched, pieces, split

extents = st.integers(1, 6)


@st.composite
def boxes(draw: st.DrawFn, axes: int = 2, low: int = -9, high: int = 9) -> Box:
    """Draw a box anywhere; it may be empty."""
    pairs = [sorted(draw(st.tuples(st.integers(low, high), st.integers(low, high)))) for _ in range(axes)]
    return Box(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))


def voxels_of(box: Box) -> set[tuple[int, ...]]:
    """Return the indices in a box, one by one."""
    return (
        set(np.ndindex(*box.shape))
        if not any(box.start)
        else {tuple(a + b for a, b in zip(index, box.start, strict=True)) for index in np.ndindex(*box.shape)}
    )


def paste(box: Box, whole: npt.NDArray[Any], boundary: Boundary) -> npt.NDArray[Any]:
    """Fill a box from its pieces; voxels that no piece gives stay -1, voxels given twice add up."""
    out = np.full(box.shape, -1)
    for piece in pieces(box, whole.shape, boundary):
        assert piece.source.shape == piece.target.shape
        assert (out[piece.target.slices] == -1).all()
        out[piece.target.slices] = whole[piece.source.slices]
    return out


@given(st.tuples(extents, extents, extents), boxes(axes=3, low=-13, high=13), st.sampled_from(Boundary))
def test_pieces_equal_numpys_padding(shape: tuple[int, int, int], box: Box, boundary: Boundary) -> None:
    """A box that leaves the sample equals numpy.pad of the sample, by zeros or wrapped round, cut at the box."""
    whole = np.arange(1, np.prod(shape) + 1).reshape(shape)
    around = 14
    mode: Any = {"mode": "wrap"} if boundary is Boundary.PERIODIC else {"mode": "constant", "constant_values": -1}
    expected = np.pad(whole, around, **mode)[box.shift((around,) * 3).slices]
    assert np.array_equal(paste(box, whole, boundary), expected)


@given(boxes())
def test_one_box_inside_is_one_piece(box: Box) -> None:
    """A box inside the sample is read at once, whatever the boundary; an empty box needs no read."""
    inside = box.shift((9, 9))
    for boundary in Boundary:
        found = pieces(inside, (18, 18), boundary)
        assert [piece.source for piece in found] == ([inside] if box.size else [])


def test_a_boundary_is_also_a_word() -> None:
    """Plain strings are parsed, so that "zero" never means periodic."""
    box = Box((-1,), (1,))
    assert pieces(box, (4,), "zero") == pieces(box, (4,), Boundary.ZERO) != pieces(box, (4,), "periodic")
    with pytest.raises(UsageError, match="boundary: found 'wrap', expected 'zero' or 'periodic'"):
        pieces(box, (4,), "wrap")


@pytest.mark.parametrize("shape", [(4,), (4, 4, 4), (4, 0), (4, -1)])
def test_a_shape_that_is_none_is_refused(shape: tuple[int, ...]) -> None:
    """A sample has the axes of the box and no empty one."""
    with pytest.raises(UsageError, match="2 extents of 1 or more"):
        pieces(Box((0, 0), (1, 1)), shape, Boundary.ZERO)


@given(st.integers(1, 400), st.integers(1, 40))
def test_split_is_even_and_whole(extent: int, parts: int) -> None:
    """Blocks cover the axis in order and differ by one voxel at most; more blocks than voxels are refused."""
    if parts > extent:
        with pytest.raises(UsageError, match="more ranks than voxels"):
            split(extent, parts)
        return
    bounds = split(extent, parts)
    sizes = np.diff(bounds)
    assert (bounds[0], bounds[-1], len(sizes)) == (0, extent, parts)
    assert 1 <= sizes.min() <= sizes.max() <= sizes.min() + 1


@pytest.mark.parametrize("parts", [0, -1])
def test_split_into_nothing_is_refused(parts: int) -> None:
    """A number of parts is 1 or more."""
    with pytest.raises(UsageError, match="number of parts"):
        split(4, parts)


@given(boxes(), boxes())
def test_intersection_is_that_of_sets(one: Box, other: Box) -> None:
    """A box is the set of its voxels: intersect and contains are those of sets."""
    both = voxels_of(one) & voxels_of(other)
    found = one.intersect(other)
    assert (voxels_of(found) if found else set()) == both
    assert one.intersect(other) == other.intersect(one)
    if one.contains(other):
        assert voxels_of(other) <= voxels_of(one)
    elif other.size:
        assert not voxels_of(other) <= voxels_of(one)


def test_a_shift_has_the_boxs_axes() -> None:
    """Another number of axes is refused; it would silently drop some."""
    with pytest.raises(UsageError, match="2 axes"):
        Box((0, 0), (1, 1)).shift((1, 1, 1))


@given(boxes(), st.tuples(st.integers(-5, 5), st.integers(-5, 5)))
def test_shifts_undo_each_other(box: Box, offset: tuple[int, int]) -> None:
    """relative_to undoes shift, and neither changes the shape."""
    moved = box.shift(offset)
    assert moved.shape == box.shape
    assert moved.relative_to(offset) == box
    assert box.relative_to(box.start) == Box.whole(box.shape)


@given(boxes(low=0), st.tuples(st.integers(1, 5), st.integers(1, 5)))
def test_chunks_touched_are_those_that_hold_a_voxel(box: Box, chunk: tuple[int, int]) -> None:
    """The range of chunks is exactly that of the voxels' chunks; an empty box touches none."""
    expected = {tuple(i // width for i, width in zip(voxel, chunk, strict=True)) for voxel in voxels_of(box)}
    assert voxels_of(chunks_touched(box, chunk)) == expected


def test_halo_words() -> None:
    """One width, one per axis, numpy's integers or a Halo; anything else is refused."""
    assert Halo.parse(2) == Halo((2, 2, 2), (2, 2, 2))
    assert Halo.parse([1, 0, 2]) == Halo((1, 0, 2), (1, 0, 2))
    assert Halo.parse(np.int64(1)) == Halo.parse(1)  # type: ignore[arg-type] # an integer all the same
    assert Halo.parse(Halo((1, 2, 3), (0, 0, 0))).low == (1, 2, 3)
    assert Halo.parse(1)
    assert not Halo.parse(0)
    assert Box.whole((4, 4, 4)).expand(Halo((1, 2, 0), (0, 0, 3))) == Box((-1, -2, 0), (4, 4, 7))


@pytest.mark.parametrize("value", [1.0, "1", "111", None, (1, 2), (1, 2, 3, 4), (1, 2, 0.5), -1, (0, 0, -2)])
def test_other_halos_are_refused(value: Any) -> None:
    """A halo is three widths of 0 or more."""
    with pytest.raises(UsageError, match="halo"):
        Halo.parse(value)


def test_halos_of_two_lengths_are_refused() -> None:
    """Low and high widths are one per axis each."""
    with pytest.raises(UsageError, match="halo"):
        Halo((1, 1), (1, 1, 1))


@pytest.mark.parametrize(("start", "stop"), [((0, 0), (1,)), ((2,), (1,)), ((0, 5), (1, 4))])
def test_boxes_that_are_none_are_refused(start: tuple[int, ...], stop: tuple[int, ...]) -> None:
    """A box has as many starts as stops, in order."""
    with pytest.raises(UsageError, match="Box"):
        Box(start, stop)


def test_examples_in_the_documentation_hold() -> None:
    """The doctests of the module run."""
    found = doctest.testmod(geometry)
    assert found.attempted >= 4
    assert found.failed == 0
