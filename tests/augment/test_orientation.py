"""Orientations: a group of 48 that acts alike on arrays, shapes, boxes and halos."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.augment import CubeSymmetries, Flips, Orientation, Permutations, Rotations
from voxload.errors import UsageError
from voxload.geometry import Box, Halo

ORIENTATIONS = st.sampled_from(Orientation.all())
WIDTHS = st.tuples(*[st.integers(0, 3)] * 3)


def test_there_are_48_all_different_on_a_cube() -> None:
    """Each does something else to voxels that are all different, and half of them are rotations."""
    volume = np.arange(27).reshape(3, 3, 3)
    found = {one.view(volume).tobytes() for one in Orientation.all()}
    assert len(found) == len(Orientation.all()) == 48
    assert Orientation.all()[0] == Orientation()
    # The determinant of the signed permutation matrix tells rotations from mirror images.
    for one in Orientation.all():
        matrix = np.zeros((3, 3))
        for row, (axis, is_flipped) in enumerate(zip(one.axes, one.flips, strict=True)):
            matrix[row, axis] = -1 if is_flipped else 1
        assert one.is_rotation == (np.linalg.det(matrix) > 0)


def test_they_are_a_group() -> None:
    """All 48 x 48 compositions turn as one after the other does, and inverses undo."""
    volume = np.arange(60).reshape(3, 4, 5)
    for first, second in itertools.product(Orientation.all(), repeat=2):
        assert np.array_equal(second.after(first).view(volume), second.view(first.view(volume)))
    for one in Orientation.all():
        assert one.inverse().after(one) == one.after(one.inverse()) == Orientation()
        assert np.shares_memory(one.view(volume), volume)


@given(one=ORIENTATIONS, starts=WIDTHS, lengths=WIDTHS, low=WIDTHS, high=WIDTHS)
def test_boxes_and_halos_turn_with_the_voxels(
    one: Orientation,
    starts: tuple[int, int, int],
    lengths: tuple[int, int, int],
    low: tuple[int, int, int],
    high: tuple[int, int, int],
) -> None:
    """What a box holds before the turn, the turned box holds after it; so too with its halo, and back again."""
    extents = (7, 8, 9)
    volume = np.arange(7 * 8 * 9).reshape(extents)
    box = Box(starts, starts).expand(Halo((0, 0, 0), lengths))
    turned = one.box(box, extents)
    assert np.array_equal(one.view(volume)[turned.slices], one.view(volume[box.slices]))
    assert one.stored_box(turned, extents) == box
    assert one.view(volume).shape == one.shape(extents)
    assert one.box(box.expand(Halo(low, high)), extents) == turned.expand(one.halo(Halo(low, high)))


@pytest.mark.parametrize(
    ("symmetries", "extents", "count"),
    [
        (CubeSymmetries(), (4, 4, 4), 48),
        (CubeSymmetries(), (4, 5, 4), 16),
        (CubeSymmetries(), (4, 5, 6), 8),
        (CubeSymmetries("HW"), (4, 5, 5), 8),
        (Rotations(), (4, 4, 4), 24),
        (Rotations(), (4, 4, 5), 8),
        (Rotations("HW"), (9, 4, 4), 4),
        (Permutations(), (4, 4, 4), 6),
        (Permutations(), (5, 4, 4), 2),
        (Flips(), (4, 5, 6), 8),
        (Flips("dw"), (4, 5, 6), 4),
    ],
)
def test_symmetries_are_groups_that_keep_extents(symmetries: Flips, extents: tuple[int, int, int], count: int) -> None:
    """Each kind has as many elements as its group, is closed, and leaves the shape as it is."""
    found = symmetries.orientations(extents)
    assert len(set(found)) == count
    assert {b.after(a) for a in found for b in found} == set(found)
    assert all(one.shape(extents) == extents for one in found)


def test_what_cannot_be_exchanged_is_refused() -> None:
    """Named axes of unequal extent, and samples that would never change, are errors; so are letters of no axis."""
    with pytest.raises(UsageError, match=r"Rotations\(axes='HW'.*found extents \(4, 4, 5\)"):
        Rotations("HW").orientations((4, 4, 5))
    with pytest.raises(UsageError, match="expected axes of equal extent"):
        Permutations().orientations((3, 4, 5))
    for kind, axes in ((Flips, "DX"), (Flips, "DD"), (Flips, ""), (Rotations, "W")):
        with pytest.raises(UsageError, match="each once"):
            kind(axes)
    with pytest.raises(UsageError, match="a permutation"):
        Orientation((0, 0, 1))
