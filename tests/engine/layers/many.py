"""Thousands of random layers, volumes and cuts against torch.nn in float64: outputs, every gradient, buffers."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.splitting.cases import draw
from bench.splitting.compare import compare
from tests.support.examples import few
from voxload.engine.run.join import Join

TOLERANCE = 1e-12
_SHARE = 8
"""One of so many layers is drawn in `make test`: the kinds have seventeen tests, and hundreds of layers each."""


def check_many(kind: str, examples: int, *, join: Join = Join.PAD) -> None:
    """Compare so many random layers of a kind, each over a random cut, with one process."""
    compared, examples = 0, few(examples, share=_SHARE)

    @given(st.randoms(use_true_random=False))
    @settings(
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large],
        database=None,
    )
    def check(random: Random) -> None:
        nonlocal compared
        case = draw(random, kind)
        seed = random.random()
        while case is None:  # torch has no result either
            seed = Random(seed).random()
            case = draw(Random(seed), kind)
        compared += 1
        errors = compare(case, join=join)
        assert errors.worst <= TOLERANCE, (case, errors)

    check()
    assert compared >= examples
