"""Numbers of axes: complete, told apart, and true."""

from __future__ import annotations

import doctest
from itertools import pairwise

import pytest

from voxload.pictures import numbers
from voxload.pictures.numbers import plain


def test_examples_hold() -> None:
    """What the docstrings show is what comes."""
    assert doctest.testmod(numbers).failed == 0


@pytest.mark.parametrize(
    "ticks",
    [
        [0, 1e6, 2e6],
        [1e6 + 0.5, 1e6 + 1.0],
        [-0.25, 0.0, 0.25],
        [1e-12, 2e-12],
        [3e20, 4e20],
        [5.04e-7, 5.08e-7],
        [7.0],
    ],
)
def test_numbers_are_whole_and_told_apart(ticks: list[float]) -> None:
    """Each text is the number itself, to a part of the step: no factor stands at the end of the axis."""
    texts = plain(ticks)
    assert len(set(texts)) == len(ticks)
    step = min((b - a for a, b in pairwise(ticks)), default=1.0)
    for text, tick in zip(texts, ticks, strict=True):
        assert float(text.replace(",", "")) == pytest.approx(tick, abs=step / 10)
