"""Thousands of random convolutions over random cuts."""

from __future__ import annotations

import pytest

from tests.engine.layers.many import check_many, parts
from voxload.engine.run.join import Join

EXAMPLES = 230
USUAL = 200
"""Examples of the convolutions that networks have."""


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("kind", ["convolution", "transposed convolution"])
@pytest.mark.parametrize("part", parts(EXAMPLES, least=5))
def test_any_convolution_over_any_cut_equals_one_process(kind: str, part: int) -> None:
    """Every setting that torch accepts, over any cut, gives torch's own numbers to rounding."""
    check_many(kind, EXAMPLES, part)


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("join", list(Join), ids=lambda join: join.value)
@pytest.mark.parametrize("part", parts(USUAL))
def test_every_way_of_joining_halos_equals_one_process(join: Join, part: int) -> None:
    """Padding the block, computing its faces again and adding to them give the same numbers to rounding."""
    check_many("usual convolution", USUAL, part, join=join)
