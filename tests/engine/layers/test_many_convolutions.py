"""Thousands of random convolutions over random cuts."""

from __future__ import annotations

import pytest

from tests.engine.layers.many import check_many
from voxload.engine.run.join import Join

PARTS = 5
"""Tests that share the cases of a kind, so that none comes near the time limit of a test on a busy machine."""


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("kind", ["convolution", "transposed convolution"])
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))])
def test_any_convolution_over_any_cut_equals_one_process(kind: str, part: int) -> None:  # noqa: ARG001 - one of several
    """Every setting that torch accepts, over any cut, gives torch's own numbers to rounding."""
    check_many(kind, 230)


@pytest.mark.parametrize("join", list(Join), ids=lambda join: join.value)
def test_every_way_of_joining_halos_equals_one_process(join: Join) -> None:
    """Padding the block, computing its faces again and adding to them give the same numbers to rounding."""
    check_many("usual convolution", 200, join=join)
