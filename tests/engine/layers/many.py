"""Thousands of random layers, volumes and cuts against torch.nn in float64: outputs, every gradient, buffers.

VOXLOAD_TEST_CASES=20000 in the environment of `pytest -m long` asks for so many cases of all kinds together.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.support.examples import few
from tests.support.splitting.cases import LAYERS, draw
from tests.support.splitting.compare import compare
from voxload.engine.run.join import Join

TOLERANCE = 1e-12
_ASKED = int(os.environ.get("VOXLOAD_TEST_CASES", "0"))
"""Cases of all kinds together, in the long parts alone; 0 where nobody asks."""
_SHARE = 8
"""One of so many layers is drawn in `make test`: the kinds have thirteen tests, and hundreds of layers each."""


def parts(examples: int, *, least: int = 1) -> list[Any]:
    """Return the numbers of the parts that a kind's cases are run in, as parameters: the first is quick, others long.

    `examples` are in each, so few that none comes near the time limit of a test on a busy machine.
    """
    asked = -(-_ASKED // (len(LAYERS) * examples))
    return [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, max(least, asked + 1)))]


def check_many(kind: str, examples: int, part: int, *, join: Join = Join.PAD) -> None:
    """Compare so many random layers of a kind, each over a random cut, with one process; fewer in the first part.

    Prints how many there were and the worst error of them.
    """
    compared, worst = 0, 0.0
    examples = examples if part else few(examples, share=_SHARE)

    @given(st.randoms(use_true_random=False))
    @settings(
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large],
        database=None,
    )
    def check(random: Random) -> None:
        nonlocal compared, worst
        case = draw(random, kind)
        following = random.random()
        while case is None:  # torch has no result either
            following = Random(following).random()
            case = draw(Random(following), kind)
        compared += 1
        errors = compare(case, join=join)
        worst = max(worst, errors.worst)
        assert errors.worst <= TOLERANCE, (case, errors)

    if settings.default is not None and settings.default.derandomize:
        seed(part)(check)  # derandomised, as in CI, all parts of a kind would be the same
    check()
    print(f"{kind}: {compared} cases, worst relative error {worst:.1e}")  # noqa: T201 - pytest -rP shows it
    assert compared >= examples
