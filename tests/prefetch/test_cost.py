"""CostModel: what it learns, how fast, and what does not disturb it."""

from __future__ import annotations

import random

import pytest

from voxload.errors import UsageError
from voxload.prefetch.cost import PRIORS, CostModel, Speed
from voxload.prefetch.events import Source, SourceKind

STORAGE = Source(SourceKind.STORAGE)


def test_before_the_first_fetch_the_prior_holds() -> None:
    """What was never tried is expected to be fast."""
    assert CostModel().predicted(STORAGE, 10**6) == PRIORS[SourceKind.STORAGE].seconds(10**6)


def test_latency_and_bandwidth_are_told_apart_where_sizes_differ() -> None:
    """Predictions hold for sizes between and beyond those seen."""
    truth, costs, chance = Speed(latency=0.02, bandwidth=1e8), CostModel(), random.Random(1)
    for _ in range(200):
        nbytes = chance.randrange(10**5, 10**7)
        costs.observe(STORAGE, nbytes, truth.seconds(nbytes) * chance.uniform(0.9, 1.1))
    for nbytes in (10**4, 10**6, 10**8):
        assert costs.predicted(STORAGE, nbytes) == pytest.approx(truth.seconds(nbytes), rel=0.2)
    assert costs.accuracy()[SourceKind.STORAGE] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("nbytes", [0, 1, 10**7])
def test_equal_sizes_are_predicted_well(nbytes: int) -> None:
    """Blocks of one size are the rule."""
    costs = CostModel()
    for _ in range(30):
        costs.observe(STORAGE, nbytes, 0.3)
    assert costs.predicted(STORAGE, nbytes) == pytest.approx(0.3, rel=0.05)
    assert costs.predicted(STORAGE, nbytes + 10**6) >= costs.predicted(STORAGE, nbytes) * 0.999


def test_one_outlier_moves_little_and_a_change_comes_through() -> None:
    """A hiccup of a thousand times is forgotten; a lasting change by 20 is learnt in a few dozen fetches."""
    costs = CostModel()
    for _ in range(50):
        costs.observe(STORAGE, 10**6, 0.01)
    costs.observe(STORAGE, 10**6, 10.0)
    assert costs.predicted(STORAGE, 10**6) < 0.013
    for _ in range(60):
        costs.observe(STORAGE, 10**6, 0.2)
    assert costs.predicted(STORAGE, 10**6) == pytest.approx(0.2, rel=0.2)


def test_a_peer_hardly_known_is_taken_to_be_like_the_others() -> None:
    """Then it is judged by its own."""
    costs = CostModel()
    for _ in range(20):
        costs.observe(Source(SourceKind.PEER, 1), 10**6, 0.01)
    assert costs.predicted(Source(SourceKind.PEER, 2), 10**6) == pytest.approx(0.01, rel=0.1)
    for _ in range(20):
        costs.observe(Source(SourceKind.PEER, 2), 10**6, 0.05)
    assert costs.predicted(Source(SourceKind.PEER, 2), 10**6) == pytest.approx(0.05, rel=0.1)
    assert costs.predicted(Source(SourceKind.PEER, 1), 10**6) == pytest.approx(0.01, rel=0.1)


def test_the_storage_alone_is_handicapped() -> None:
    """Times the handicap, and the grace besides."""
    costs = CostModel(handicap=4, grace=0.5)
    peer = Source(SourceKind.PEER, 0)
    assert costs.weighed(STORAGE, 100) == 4 * costs.predicted(STORAGE, 100) + 0.5
    assert costs.weighed(peer, 100) == costs.predicted(peer, 100)
    with pytest.raises(UsageError, match="handicap"):
        CostModel(handicap=0.5)


def test_predictions_are_never_negative() -> None:
    """Whatever was seen, a fetch takes time, and a larger one no less."""
    chance = random.Random(2)
    for _ in range(50):
        costs = CostModel()
        for _ in range(chance.randrange(1, 12)):
            costs.observe(STORAGE, chance.choice([0, 10, 10**4, 10**8]), chance.choice([0.0, 1e-6, 0.1, 5.0]))
        seconds = [costs.predicted(STORAGE, nbytes) for nbytes in (0, 1, 10**3, 10**6, 10**9)]
        assert seconds[0] >= 0
        assert seconds == sorted(seconds)
