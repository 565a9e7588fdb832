"""Draws: everybody meets one other at most, nobody is lost, and equal draws everywhere."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from voxload.parallel.tournament.draws import FACTORS, is_better, partners, rate_factor, successors

LOSSES = st.floats(allow_infinity=True, allow_nan=True)


@given(st.integers(1, 40), st.integers(0, 10**6), st.integers(0, 99))
def test_all_meet_one_other(trainers: int, number: int, seed: int) -> None:
    """Whoever one meets meets one; of an odd number one stays alone."""
    found = partners(trainers, number, seed=seed)
    assert sorted(found) == list(range(trainers))
    assert all(found[found[trainer]] == trainer for trainer in range(trainers))
    assert sum(found[trainer] == trainer for trainer in range(trainers)) == trainers % 2


def test_rounds_are_drawn_anew() -> None:
    """Every trainer meets every other in some of them, by any seed; step sizes go either way."""
    for seed in (0, 1):
        rounds = [partners(6, number, seed=seed) for number in range(100)]
        assert {(trainer, found[trainer]) for found in rounds for trainer in range(6)} == {
            (one, other) for one in range(6) for other in range(6) if one != other
        }
    assert rounds != [partners(6, number, seed=0) for number in range(100)]
    assert {rate_factor(2, number, seed=0) for number in range(30)} == set(FACTORS)


@given(st.dictionaries(st.integers(0, 30), LOSSES, min_size=1), st.floats(0.01, 0.5))
def test_the_worst_go_on_with_the_best(scores: dict[int, float], share: float) -> None:
    """As many as the share says, each with a better one's, or an equal one's; nobody that is copied changes."""
    found = successors(scores, share=share)
    assert set(found) == set(scores)
    changed = {trainer: model for trainer, model in found.items() if trainer != model}
    assert len(changed) == int(len(scores) * share)
    for trainer, model in changed.items():
        assert found[model] == model
        assert not is_better(scores[trainer], scores[model])
    best = min(changed.values(), key=lambda model: (math.isnan(scores[model]), scores[model])) if changed else None
    assert best is None or not any(is_better(scores[other], scores[best]) for other in scores)


def test_what_is_no_number_never_wins() -> None:
    """An equal one does not, either."""
    nan = math.nan
    assert is_better(1.0, 2.0)
    assert is_better(1.0, nan)
    assert not any(is_better(*pair) for pair in ((2.0, 1.0), (1.0, 1.0), (nan, 1.0), (nan, nan), (nan, math.inf)))
