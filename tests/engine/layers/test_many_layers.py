"""Thousands of random layers over random cuts: all but convolutions, which have a file of their own."""

from __future__ import annotations

import pytest

from tests.engine.layers.many import check_many, parts
from tests.support.splitting.cases import LAYERS

EXAMPLES = 300
CONVOLUTIONS = {"convolution", "usual convolution", "transposed convolution"}


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("kind", [kind for kind in LAYERS if kind not in CONVOLUTIONS])
@pytest.mark.parametrize("part", parts(EXAMPLES))
def test_any_layer_over_any_cut_equals_one_process(kind: str, part: int) -> None:
    """Every setting of a layer that torch accepts, over any cut, gives torch's own numbers to rounding."""
    check_many(kind, EXAMPLES, part)
