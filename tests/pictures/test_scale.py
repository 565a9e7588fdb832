"""One scale for all planes, with plain numbers beside it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from voxload.pictures.scale import Scale


def test_it_spans_the_finite_voxels_of_all_planes() -> None:
    """One plane has the least, another one the most; what is odd does not count."""
    planes = [np.array([[-3.0, np.nan]]), np.array([[np.inf, 1.0]], "f4"), np.array([[2, 7]], "i2")]
    found = Scale.of(planes)
    assert (found.low, found.high, found.is_logarithmic, found.is_known) == (-3.0, 7.0, False, True)
    np.testing.assert_array_equal(found.drawn(planes[1]), [[np.nan, 1.0]])


@pytest.mark.parametrize(
    ("values", "expected"), [([0, 99], False), ([0, 100], True), ([-1, 1000], False), ([0.0, 1e6], False)]
)
def test_counts_over_decades_are_logarithmic(values: list[float], *, expected: bool) -> None:
    """Whole numbers from 0 on alone; the same value has the same colour, whatever the plane."""
    found = Scale.of([np.array([values])])
    assert found.is_logarithmic is expected
    middle = found.norm()(math.expm1(math.log1p(values[1]) / 2)) if expected else 0.5
    assert middle == pytest.approx(0.5)


@pytest.mark.parametrize("value", [0.0, 5.0, -1e-30, 3e38, 1.7e308, -1.7e308])
def test_one_value_alone_has_a_colour(value: float) -> None:
    """It lies in the middle, of numbers that are finite."""
    found = Scale.of([np.full((2, 2), value)])
    assert math.isfinite(found.low)
    assert found.low < found.high < math.inf
    assert found.norm()(found.drawn(np.array([[value]])))[0, 0] == pytest.approx(0.5)


def test_a_range_that_is_no_number_is_divided() -> None:
    """The whole range of float64 is drawn, and the label says what numbers are divided by."""
    found = Scale.of([np.array([[-1.7e308, 1.7e308]])])
    assert math.isfinite(found.high - found.low)
    np.testing.assert_allclose(found.norm()(found.drawn(np.array([[-1.7e308, 0.0, 1.7e308]]))), [[0.0, 0.5, 1.0]])
    assert found.label == "voxel / 4"


def test_nothing_finite_has_no_numbers() -> None:
    """Neither an error nor a made-up range."""
    found = Scale.of([np.full((2, 2), np.nan), np.full((1, 1), np.inf)])
    assert not found.is_known
    assert found.label == "no voxel is a finite number"


@pytest.mark.parametrize("high", [100, 1234, 65535, 2**40])
@pytest.mark.parametrize("low", [0, 7])
def test_ticks_of_counts(low: int, high: int) -> None:
    """Ascending, ends among them, each within the range, and few."""
    ticks = Scale.of([np.array([[low, high]])]).ticks()
    assert ticks == sorted(set(ticks))
    assert ticks[0] >= low
    assert ticks[-1] == high
    assert 3 <= len(ticks) <= 14
