"""Values between points where they were measured."""

from __future__ import annotations

import numpy as np
import pytest

from voxload.errors import UsageError
from voxload.plan.costs.surface import Floats, Surface, not_negative


def _terms(points: Floats) -> Floats:
    return np.stack([np.ones(len(points)), points[:, 0], points[:, 0] * points[:, 1]], 1)


def _points(count: int, seed: int = 0) -> Floats:
    return np.exp(np.random.default_rng(seed).uniform(0, 8, (count, 2)))


def test_what_terms_say_is_found_again() -> None:
    """From points with noise of a twentieth, elsewhere and far outside, and the error that is stated is that noise."""
    points, noise = _points(60), np.random.default_rng(1)
    values = (3 + 0.5 * points[:, 0] * points[:, 1]) * np.exp(noise.normal(0, 0.05, 60))
    surface = Surface(points.tolist(), values.tolist(), _terms)
    for x, y in _points(20, 5):
        assert surface.at((x, y)) == pytest.approx(3 + 0.5 * x * y, rel=0.15)
    assert surface.at((1e6, 1e5)) == pytest.approx(0.5e11, rel=0.2)
    assert 0.02 < surface.error < 0.08


def test_what_terms_do_not_say_is_learnt_from_points() -> None:
    """A step of a factor of three along one number is told to a quarter where points are."""
    points = _points(150)
    values = points[:, 0] * np.where(points[:, 1] > 50, 3.0, 1.0)
    surface = Surface(points.tolist(), values.tolist(), _terms)
    assert surface.at((100.0, 5.0)) == pytest.approx(100, rel=0.25)
    assert surface.at((100.0, 1000.0)) == pytest.approx(300, rel=0.25)


def test_outside_of_all_points_nothing_was_measured() -> None:
    """A factor of two beyond the last one still counts."""
    surface = Surface([(1.0, 1.0), (100.0, 10.0)], [1.0, 2.0], _terms)
    assert surface.is_measured((180.0, 10.0))
    assert not surface.is_measured((300.0, 10.0))
    assert not surface.is_measured((50.0, 0.1))


def test_shares_are_never_negative() -> None:
    """Even where a fit without that condition would be better."""
    rows = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    found = not_negative(rows, np.array([3.0, 2.0, 1.5]))
    assert (found >= 0).all()
    assert found[1] == 0


@pytest.mark.parametrize(("points", "values"), [([], []), ([(1.0, 0.0)], [1.0]), ([(1.0, 1.0)], [-1.0])])
def test_what_is_not_positive_is_refused(points: list[tuple[float, float]], values: list[float]) -> None:
    """Times and sizes are."""
    with pytest.raises(UsageError, match="measured points"):
        Surface(points, values, _terms)
