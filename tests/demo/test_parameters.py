"""Tests of the drawn parameters and their scaling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.demo.parameters import NAMES, PARAMETERS, to_physical, to_unit
from voxload.errors import UsageError


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=4))
def test_scaling_goes_there_and_back(unit: list[float]) -> None:
    """Scaled parameters survive the way to physical units and back."""
    np.testing.assert_allclose(to_unit(to_physical(unit)), unit, rtol=0, atol=1e-12)


def test_the_range_is_twenty_percent_around_the_middle() -> None:
    """The ends of [-1, 1] are the middle value less and plus 20 %."""
    np.testing.assert_allclose(to_physical([0, 0, 0, 0]), [0.3, 0.8, 0.96, 70])
    np.testing.assert_allclose(to_physical([-1, 1, -1, 1]), [0.24, 0.96, 0.768, 84])
    assert NAMES == ("Omega_m", "sigma_8", "N_spec", "H_0")
    assert len(PARAMETERS) == 4


def test_many_universes_are_scaled_at_once() -> None:
    """Leading axes are kept."""
    assert to_physical(np.zeros((5, 3, 4))).shape == (5, 3, 4)


@pytest.mark.parametrize("unit", [[0, 0, 0], 0.5, [0, 0, 0, 1.5], [0, 0, 0, np.nan]])
def test_impossible_scaled_parameters_are_refused(unit: object) -> None:
    """Another number of parameters, a value outside the range and a NaN raise UsageError."""
    with pytest.raises(UsageError, match="parameters"):
        to_physical(unit)  # type: ignore[arg-type]  # wrong input is the point
